// Signing in, navigation, and the view of the address.

import { render, type JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, type Session, connect, request, signIn, signOut } from "./api";
import { PlanPage, PlansPage } from "./plans";
import { link, useRoute } from "./route";
import { CurvesPage, NodePage, OverviewView, PodPage, PoolPage, TenantPage, UnknownPage } from "./views";
import { WhatIfPage } from "./what-if";

/** The token behind `#token=`, which no server sees; it is removed from the address and the history at once. */
function takeToken(): string | undefined {
  const found = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (found !== undefined) history.replaceState(null, "", location.pathname);
  return found === undefined ? undefined : decodeURIComponent(found);
}
const given = takeToken();

function SignIn({ message, onSession }: { message: string; onSession: (session: Session) => void }): JSX.Element {
  const [token, setToken] = useState("");
  const [error, setError] = useState(message);
  const submit = (event: Event): void => {
    event.preventDefault();
    signIn(token.trim()).then(onSession, (failed: unknown) => setError(failed instanceof ApiError ? failed.message : String(failed)));
  };
  return (
    <main class="sign-in">
      <h1>Croft</h1>
      <p>Sign in with a token for this page. <code>croft page</code> opens it signed in, and this prints one:</p>
      <pre>kubectl create token NAME --namespace NAMESPACE --audience croft-page</pre>
      {error ? <p role="alert" class="error">{error}</p> : null}
      <form onSubmit={submit}>
        <label>Token <input type="password" autocomplete="off" value={token} required onInput={(event) => setToken(event.currentTarget.value)} /></label>
        <button type="submit">Sign in</button>
      </form>
    </main>
  );
}

function Shown({ session }: { session: Session }): JSX.Element {
  const route = useRoute();
  const [view, first = "", second = ""] = route;
  const parts: Record<string, number> = { tenants: 2, pools: 2, nodes: 2, pods: 3, curves: 1, "what-if": 1 };
  if (view === undefined) return <OverviewView isOperator={session.operator} />;
  if (view === "plans" && route.length === 1) return <PlansPage />;
  if (view === "plans" && route.length === 2 && /^\d{1,15}$/.test(first)) return <PlanPage key={first} at={first} />;
  if (parts[view] === route.length) {
    switch (view) {
      case "tenants": return <TenantPage key={first} name={first} />;
      case "pools": return <PoolPage key={first} name={first} />;
      case "nodes": return <NodePage key={first} name={first} />;
      case "pods": return <PodPage key={`${first}/${second}`} namespace={first} name={second} />;
      case "curves": return <CurvesPage />;
      case "what-if": return <WhatIfPage namespaces={session.namespaces} />;
    }
  }
  return <UnknownPage key={location.hash} address={location.hash} />;
}

function App(): JSX.Element {
  const [session, setSession] = useState<Session>();
  const [message, setMessage] = useState<string>();
  const [isOpen, setOpen] = useState(true);
  const [view] = useRoute();
  useEffect(() => {
    const read = given === undefined ? request<Session>("session") : signIn(given);
    read.then(setSession, (error: unknown) => setMessage(error instanceof ApiError && error.status === 401 ? "" : String(error instanceof Error ? error.message : error)));
  }, []);
  useEffect(() => session ? connect(setOpen) : undefined, [session]);
  if (session === undefined) return message === undefined ? <main><p>reading</p></main> : <SignIn message={message} onSession={setSession} />;
  const leave = (): void => { void signOut().finally(() => { setSession(undefined); setMessage(""); }); };
  const item = (text: string, ...parts: string[]): JSX.Element =>
    <a href={link(...parts)} aria-current={(view ?? "") === (parts[0] ?? "") ? "page" : undefined}>{text}</a>;
  return (
    <>
      <header>
        <a class="skip" href="#page" onClick={(event) => { event.preventDefault(); document.querySelector("h1")?.focus(); }}>Skip to the content</a>
        <nav aria-label="Views">
          {item("Overview")}
          {item("Curves", "curves")}
          {session.operator ? item("Plans", "plans") : null}
          {item("What if", "what-if")}
        </nav>
        <p class="who">
          {session.cluster ? <b class="cluster">{session.cluster}</b> : null}{" "}
          <span role="status" class={isOpen ? "good" : "note"}>{isOpen ? "live" : "connecting"}</span> <span>{session.user}</span>
          <button type="button" onClick={leave}>Sign out</button>
        </p>
      </header>
      <Shown session={session} />
    </>
  );
}

const root = document.getElementById("page");
if (root) render(<App />, root);
