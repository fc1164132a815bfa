// The views. Each reads one route of the API.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import {
  type Advice, type AdviceRow, ApiError, type Bill, type Change, type Entry, type Launch, type NodeDetail, type NodeRemoval, type NodeView, type Overview, type Past, type PastNode, type PendingGroup, type PodDetail, type PodFacts,
  type PoolNow, type PoolRow, type PoolView, type Rows, type TemplateView, type TenantNow, type TenantRow, type TenantThen, type TenantView, type TypePrice, request,
} from "./api";
import { CurvesBody } from "./curves";
import { age, bill, cores, costOf, counted, dollars, gib, moment, percent, perHour, price } from "./format";
import { type Live, useLive } from "./live";
import { Log } from "./log";
import { MapSection } from "./map";
import { Blocks, type Column, Conditions, Pods, Reasons, State, States, Table, Timeline, Usage } from "./parts";
import { link, pathOf } from "./route";

/** A view's title, which is also the document's, and its data once it is there. */
export function View<T>({ title, live, children }: { title: string; live: Live<T>; children: (data: T) => ComponentChildren }): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => { document.title = `${title} - Croft`; heading.current?.focus(); }, [title]);
  return (
    <main aria-busy={live.data === undefined && live.error === undefined}>
      <h1 tabIndex={-1} ref={heading}>{title}</h1>
      {live.error ? <p role="alert" class="error">{live.error.message}</p> : null}
      {live.data === undefined ? (live.error ? null : <p>reading</p>) : children(live.data)}
    </main>
  );
}

const readiness = (row: { ready: string }): ComponentChildren => row.ready === "" ? "unknown" : row.ready === "True" ? row.ready : <b class="note">{row.ready}</b>;

const TENANT_COLUMNS: Column<TenantRow>[] = [
  { title: "Tenant", cell: (row) => <a href={link("tenants", row.name)}>{row.name}</a>, key: (row) => row.name },
  { title: "Pools", cell: (row) => row.pools.map((pool, at) => <>{at > 0 ? ", " : ""}<a href={link("pools", pool)}>{pool}</a></>) },
  { title: "Pods", cell: (row) => row.pods, key: (row) => row.pods, isNumber: true },
  { title: "Pending", cell: (row) => row.pending > 0 ? <b class="note">{row.pending}</b> : 0, key: (row) => row.pending, isNumber: true },
  { title: "Violations", cell: (row) => row.violations > 0 ? <b class="bad">{row.violations}</b> : 0, key: (row) => row.violations, isNumber: true },
  { title: "Nodes", cell: (row) => row.nodes, key: (row) => row.nodes, isNumber: true },
  { title: "$ per hour", cell: (row) => perHour(row.cost), key: (row) => row.cost.micros, isNumber: true },
  { title: "Ready", cell: readiness },
];
const POOL_COLUMNS: Column<PoolRow>[] = [
  { title: "Pool", cell: (row) => <a href={link("pools", row.name)}>{row.name}</a>, key: (row) => row.name },
  { title: "Tenants", cell: (row) => row.tenants.map((tenant, at) => <>{at > 0 ? ", " : ""}<a href={link("tenants", tenant)}>{tenant}</a></>) },
  { title: "Nodes", cell: (row) => <States states={row.states} /> },
  { title: "Pods", cell: (row) => row.pods, key: (row) => row.pods, isNumber: true },
  { title: "$ per hour", cell: (row) => perHour(row.cost), key: (row) => row.cost.micros, isNumber: true },
  { title: "Ready", cell: readiness },
];
const byName = (row: { name: string }): string => row.name;

const MINUTE = 60_000;
/** Pods that a sentence names. */
const PODS_NAMED = 10;

/** A slider over the time that the record covers, by minutes, or by seconds in its first hour; at its end the view is live. */
function TimeBar({ begins, at, onAt }: { begins: number | null; at: number | undefined; onAt: (at: number | undefined) => void }): JSX.Element | null {
  const [end] = useState(() => Date.now());
  const step = begins !== null && end - begins < 60 * MINUTE ? 1_000 : MINUTE;
  if (begins === null || end - begins < 5 * step) return null;
  const last = Math.floor((end - begins) / step);
  const value = at === undefined ? last : Math.max(0, Math.floor((at - begins) / step));
  const text = at === undefined ? "now" : moment(at);
  return (
    <p class="timebar">
      <label>Time <input type="range" min={0} max={last} value={value} aria-valuetext={text}
        onInput={(event) => { const chosen = Number(event.currentTarget.value); onAt(chosen >= last ? undefined : begins + chosen * step); }} /></label>
      <output>{text}</output>
      {at === undefined ? null : <button type="button" onClick={() => onAt(undefined)}>Now</button>}
    </p>
  );
}

/** A view at a time, read a moment after the slider stops. */
function usePast<T>(path: string, at: number | undefined): { past: Past<T> | undefined; error: string } {
  const [state, setState] = useState<{ past: Past<T> | undefined; error: string }>({ past: undefined, error: "" });
  useEffect(() => {
    if (at === undefined) { setState({ past: undefined, error: "" }); return; }
    const abort = new AbortController();
    const timer = window.setTimeout(() => {
      request<Past<T>>(`${path}?at=${at}`, { signal: abort.signal }).then(
        (past) => setState({ past, error: "" }),
        (error: unknown) => { if (!abort.signal.aborted) setState({ past: undefined, error: error instanceof ApiError ? error.message : String(error) }); },
      );
    }, 150);
    return () => { window.clearTimeout(timer); abort.abort(); };
  }, [path, at]);
  return state;
}

const PAST_COLUMNS: Column<PastNode>[] = [
  { title: "Node", cell: (row) => <a href={link("nodes", row.claim)}>{row.node || row.claim}</a>, key: (row) => row.node || row.claim },
  { title: "Pool", cell: (row) => row.pool, key: (row) => row.pool },
  { title: "Tenants", cell: (row) => row.tenants.join(", "), key: (row) => row.tenants.join(", ") },
  { title: "State", cell: (row) => row.phase, key: (row) => row.phase },
  { title: "Pods", cell: (row) => row.pods, key: (row) => row.pods, isNumber: true },
  { title: "$ per hour", cell: (row) => row.price === null ? "unknown" : dollars(row.price), key: (row) => row.price ?? -1, isNumber: true },
];

/** The last snapshot before a time, or the nodes that the log names at that time. */
function PastView<T>({ past, then }: { past: Past<T>; then: (view: T, at: number) => ComponentChildren }): JSX.Element {
  const { at, snapshot, view, nodes, changes } = past;
  return (
    <>
      {snapshot === null ? (
        <>
          <p class="sum">{counted(nodes.length, "node")}, {perHour(costOf(nodes))}/h at {moment(at)}</p>
          <p class="note">The record has no snapshot of that time or before: the nodes are those that the log names.</p>
          <Table caption="Nodes at that time" rows={nodes} columns={PAST_COLUMNS} id={(row) => row.claim} text={(row) => `${row.node} ${row.claim} ${row.pool} ${row.phase}`} empty="The log names no node at that time." />
        </>
      ) : (
        <>
          <p class="note snapshot">Snapshot of {moment(snapshot)}, the last one up to {moment(at)}. It has no conditions.</p>
          {view === null ? <p class="empty">There was none that you may see.</p> : then(view, snapshot)}
        </>
      )}
      <h2>The hour before {moment(at)}</h2>
      <Log entries={changes} empty="Nothing was decided." />
    </>
  );
}

/** A view as it is now, or with the slider at an earlier time as it was. */
function Timed<T>({ begins, path, now, then }: {
  begins: number | null; path: string; now: () => ComponentChildren; then: (view: T, at: number) => ComponentChildren;
}): JSX.Element {
  const [at, setAt] = useState<number>();
  const { past, error } = usePast<T>(path, at);
  return (
    <>
      <TimeBar begins={begins} at={at} onAt={setAt} />
      {error ? <p role="alert" class="error">{error}</p> : null}
      {at === undefined ? now() : past ? <PastView past={past} then={then} /> : error ? null : <p>reading</p>}
    </>
  );
}

/** The pods of a group as links: those that the answer names. */
function GroupPods({ group }: { group: PendingGroup }): JSX.Element {
  const more = group.count - group.pods.length;
  return <p>{group.pods.map((name, at) => <>{at > 0 ? ", " : ""}<a href={link("pods", group.namespace, name)}>{group.namespace}/{name}</a></>)}{more > 0 ? ` and ${more} more` : ""}</p>;
}

/** Pending pods by workload and reason. A group of one pod is a link; others are opened. */
function PendingGroups({ groups, at }: { groups: PendingGroup[]; at?: number }): JSX.Element {
  if (groups.length === 0) return <p class="empty">No pod of a tenant is pending.</p>;
  return (
    <ul class="pending">
      {groups.map((group) => {
        const about = <>{cores(group.cpu)} CPU, {gib(group.memory)}{group.since === null ? "" : `, for ${age(group.since, at ?? Date.now())}`}{group.reason ? <>: <b class="note">{group.reason}</b></> : ""}{group.message ? ` ${group.message}` : ""}</>;
        const [only] = group.pods;
        return (
          <li key={`${group.namespace}/${group.workload}/${only}/${group.reason}`}>
            {group.count === 1 && only !== undefined ? <><a href={link("pods", group.namespace, only)}>{group.namespace}/{only}</a>, {about}</> : (
              <details><summary>{counted(group.count, "pod")} of {group.workload} in {group.namespace}, {about}</summary><GroupPods group={group} /></details>
            )}
          </li>
        );
      })}
    </ul>
  );
}

function OverviewRows({ rows, isOperator, at, children }: { rows: Rows; isOperator: boolean; at?: number; children?: ComponentChildren }): JSX.Element {
  const pending = rows.pendingGroups.reduce((sum, group) => sum + group.count, 0);
  return (
    <>
      <p class="sum" aria-live="polite">{counted(rows.tenants.length, "tenant")}, {counted(rows.pools.length, "pool")}, {perHour(rows.cost)}/h, {counted(pending, "pending pod")}{rows.pendingGroups.length === 100 ? " or more" : ""}</p>
      {children}
      <h2>Tenants</h2>
      <Table caption="Tenants" rows={rows.tenants} columns={TENANT_COLUMNS} id={byName} text={byName} empty={at !== undefined ? "You see no tenant of that time." : isOperator ? "There is no Tenant: croft tenant add makes one." : "You see no tenant."} />
      <h2>Pools</h2>
      <Table caption="Pools" rows={rows.pools} columns={POOL_COLUMNS} id={byName} text={byName} empty="There is no TenantPool." />
      <h2>Pending pods</h2>
      <PendingGroups groups={rows.pendingGroups} at={at} />
      {rows.violations.length > 0 ? <><h2>Placement violations</h2><Pods caption="Placement violations" pods={rows.violations} empty="" at={at} /></> : null}
    </>
  );
}

export function OverviewView({ isOperator }: { isOperator: boolean }): JSX.Element {
  const live = useLive<Overview>("overview", () => true);
  return (
    <View title="Overview" live={live}>
      {(data) => (
        <Timed<Rows> begins={data.begins} path="at" then={(rows, at) => <OverviewRows rows={rows} isOperator={isOperator} at={at} />} now={() => (
          <>
            <OverviewRows rows={data} isOperator={isOperator}><MapSection /></OverviewRows>
            <h2>The last hour</h2>
            <Log entries={data.changes} empty="Nothing was decided in the last hour." />
          </>
        )} />
      )}
    </View>
  );
}

function Limits({ limits }: { limits: Record<string, string> }): JSX.Element | null {
  const named = Object.entries(limits);
  return named.length > 0 ? <p>Limits: {named.map(([key, value]) => `${key} ${value}`).join(", ")}</p> : null;
}

/** What the parts of a bill are, by their names in the ledger. */
const PURPOSES: Record<string, string> = {
  used: "Requests of pods.",
  daemonsets: "Requests of DaemonSets' and static pods.",
  headroom: "What the pool's headroom keeps free.",
  idle: "What no pod requests.",
  starting: "Nodes that aren't initialized yet.",
  draining: "What no pod requests on nodes that are being removed.",
};

function BillView({ bill: it, isWhole }: { bill: Bill; isWhole: boolean }): JSX.Element {
  const idle = (it.purposes["idle"] ?? 0) + (it.purposes["starting"] ?? 0) + (it.purposes["draining"] ?? 0);
  const parts = Object.entries(it.purposes).filter(([, micros]) => micros > 0);
  return (
    <section aria-labelledby="bill">
      <h2 id="bill">Bill of the month</h2>
      <p>{bill(it.total)} since {moment(Math.max(it.from, it.begins ?? it.from))}, {percent(idle, it.total)} of it for capacity that no pod requested.
        {it.begins !== null && it.begins > it.from ? " Earlier costs aren't in the record that the page reads." : ""}
        {it.committed > 0 ? ` Commitments pay for capacity of ${bill(it.committed)} at list prices beside it.` : ""}
        {isWhole ? "" : " It counts your namespaces alone."}</p>
      {it.total > 0 ? (
        <>
          <p class="stack" aria-hidden="true">{parts.map(([purpose, micros]) => <span class={`purpose ${purpose}`} title={purpose} style={{ width: `${(100 * micros) / it.total}%` }} />)}</p>
          <ul class="inline">{parts.map(([purpose, micros]) => <li><span class={`purpose ${purpose}`} aria-hidden="true" /> {purpose} {bill(micros)} ({percent(micros, it.total)})</li>)}</ul>
          <details>
            <summary>What the parts are</summary>
            <dl class="facts">{parts.map(([purpose]) => <><dt>{purpose}</dt><dd>{PURPOSES[purpose] ?? ""}</dd></>)}</dl>
          </details>
          <ul class="inline">{Object.entries(it.namespaces).map(([name, micros]) => <li>{name || "no namespace"} {bill(micros)}</li>)}</ul>
        </>
      ) : null}
    </section>
  );
}

const ADVICE_COLUMNS: Column<AdviceRow>[] = [
  { title: "Saves per hour", cell: (row) => dollars(row.saving), key: (row) => row.saving, isNumber: true },
  { title: "Constraint", cell: (row) => row.constraint, key: (row) => row.constraint },
  { title: "Of", cell: (row) => `${row.object}${row.namespace ? ` in ${row.namespace}` : ""}`, key: (row) => row.object },
  { title: "Change", cell: (row) => <span title={row.change}>{row.change}</span> },
];

/** Data that the server computes when the reader asks for it, and a button that asks. */
function useAsked<T>(path: string): { data: T | undefined; error: string | undefined; button: JSX.Element } {
  const [state, setState] = useState<{ data?: T; error?: string; isReading: boolean }>({ isReading: false });
  const ask = (): void => {
    setState({ isReading: true });
    request<T>(path).then(
      (data) => setState({ data, isReading: false }),
      (error: unknown) => setState({ error: error instanceof ApiError ? error.message : String(error), isReading: false }),
    );
  };
  const { data, error, isReading } = state;
  return { data, error, button: <button type="button" disabled={isReading} onClick={ask}>{isReading ? "Computing" : data ? "Compute again" : "Compute"}</button> };
}

/** The prices of the constraints of `what`: that takes plans of many clusters. */
function AdviceView({ path, what }: { path: string; what: string }): JSX.Element {
  const { data: advice, error, button } = useAsked<Advice>(path);
  return (
    <section aria-labelledby="advice">
      <h2 id="advice">Advice</h2>
      <p>What PodDisruptionBudgets, spreads, requirements and limits of {what} cost: the cluster with each, and without it. {button}</p>
      <div aria-live="polite">
        {error ? <p role="alert" class="error">{error}</p> : null}
        {advice ? (
          <>
            <p class="sum">{advice.rows.length > 0 ? `Without all of them: ${dollars(advice.together)}/h less.` : `None of ${counted(advice.constraints, "constraint")} costs a cent per hour.`}
              {advice.notTried > 0 ? ` ${counted(advice.notTried, "constraint")} not tried: croft advise tries more.` : ""}</p>
            {advice.rows.length > 0 ? <Table caption="Advice" rows={advice.rows} columns={ADVICE_COLUMNS} id={(row) => `${row.object} ${row.constraint}`} empty="" /> : null}
          </>
        ) : null}
      </div>
    </section>
  );
}

/** The pods of a tenant, which are read again only if a pod differs: there may be thousands. */
function TenantPods({ name, namespaces }: { name: string; namespaces: string[] }): JSX.Element {
  const live = useLive<PodFacts[]>(pathOf("tenants", name, "pods"), (change) => change.namespaces.some((one) => namespaces.includes(one)));
  if (live.error) return <p role="alert" class="error">{live.error.message}</p>;
  return live.data ? <Pods caption={`Pods of tenant ${name}`} pods={live.data} empty="It has no pod." /> : <p>reading</p>;
}

/** Namespaces, limits and pools of a tenant, and between them what is of the present. */
function TenantBody({ data, children }: { data: TenantView; children?: ComponentChildren }): JSX.Element {
  return (
    <>
      <p class="sum">{counted(data.pods, "pod")}, {data.pending} pending, {counted(data.nodes, "node")}, {perHour(data.cost)}/h</p>
      <p>Namespaces: {data.namespaceNames.join(", ") || "none"}</p>
      <Limits limits={data.limits} />
      {children}
      <h2>Pools</h2>
      <Table caption="Pools" rows={data.poolRows} columns={POOL_COLUMNS} id={byName} empty="None of its pools exists." />
      <h2>Pods</h2>
    </>
  );
}

export function TenantPage({ name }: { name: string }): JSX.Element {
  const concerns = (change: Change, data: TenantView): boolean =>
    change.tenants.includes(name) || change.namespaces.some((one) => data.namespaceNames.includes(one))
    || change.pools.some((one) => data.pools.includes(one)) || change.nodes.some((node) => node.pool !== null && data.pools.includes(node.pool));
  const live = useLive<TenantNow>(pathOf("tenants", name), concerns);
  return (
    <View title={`Tenant ${name}`} live={live}>
      {(data) => (
        <Timed<TenantThen> begins={data.begins} path={pathOf("at", "tenants", name)} now={() => (
          <>
            <TenantBody data={data}>
              <BillView bill={data.bill} isWhole={data.isWhole} />
              <AdviceView path={pathOf("tenants", name, "advice")} what="this tenant" />
            </TenantBody>
            <TenantPods name={name} namespaces={data.namespaceNames} />
            <h2>Conditions</h2>
            <Conditions conditions={data.conditions} />
            <History tenant={name} />
          </>
        )} then={(view, at) => (
          <>
            <TenantBody data={view} />
            <Pods caption={`Pods of tenant ${name}`} pods={view.podList} empty="It had no pod." at={at} />
          </>
        )} />
      )}
    </View>
  );
}

function History({ tenant }: { tenant: string }): JSX.Element {
  const live = useLive<{ entries: Entry[] }>(`history?tenant=${encodeURIComponent(tenant)}&limit=100`, (change) => change.log);
  return <><h2>History</h2>{live.error ? <p role="alert" class="error">{live.error.message}</p> : <Log entries={live.data?.entries ?? []} empty="The log names nothing of this tenant." hasTenants={false} />}</>;
}

/** Puts the nodes of a change into those of a pool, without a read. */
function patchPool(change: Change, data: PoolNow): PoolNow | undefined {
  if (change.pools.includes(data.name)) return undefined;
  const changed = new Map<string, NodeView>();
  for (const node of change.nodes) if (node.pool === data.name) changed.set(node.name, node);
  const gone = new Set(change.gone);
  const nodes = data.nodes.filter((node) => !gone.has(node.name)).map((node) => {
    const next = changed.get(node.name);
    changed.delete(node.name);
    return next ?? node;
  });
  nodes.push(...changed.values());
  const states: PoolView["states"] = {};
  for (const node of nodes) states[node.state] = (states[node.state] ?? 0) + 1;
  const templates = data.templates.map((one) => {
    const own = nodes.filter((node) => node.template === one.name);
    return { ...one, nodes: own.length, cost: costOf(own) };
  });
  return { ...data, version: change.version, nodes, templates, states, cost: costOf(nodes), pods: nodes.reduce((sum, node) => sum + node.pods, 0) };
}

const NODE_COLUMNS: Column<NodeView>[] = [
  { title: "Node", cell: (node) => <a href={link("nodes", node.name)}>{node.name}</a>, key: (node) => node.name },
  { title: "State", cell: (node) => <State state={node.state} />, key: (node) => node.state },
  { title: "Type", cell: (node) => node.instanceType, key: (node) => node.instanceType },
  { title: "Zone", cell: (node) => node.zone, key: (node) => node.zone },
  { title: "Capacity", cell: (node) => node.capacityType, key: (node) => node.capacityType },
  { title: "Pods", cell: (node) => node.pods, key: (node) => node.pods, isNumber: true },
  { title: "CPU", cell: (node) => percent(node.usedCpu, node.cpu), key: (node) => node.cpu > 0 ? node.usedCpu / node.cpu : 0, isNumber: true },
  { title: "Memory", cell: (node) => percent(node.usedMemory, node.memory), key: (node) => node.memory > 0 ? node.usedMemory / node.memory : 0, isNumber: true },
  { title: "$ per hour", cell: (node) => price(node.price, node.estimated), key: (node) => node.price ?? -1, isNumber: true },
];

const TEMPLATE_COLUMN: Column<NodeView> = { title: "Template", cell: (node) => node.template ?? "", key: (node) => node.template ?? "" };
const TEMPLATE_COLUMNS: Column<TemplateView>[] = [
  { title: "Template", cell: (row) => row.name, key: (row) => row.name },
  { title: "Weight", cell: (row) => row.weight, key: (row) => row.weight, isNumber: true },
  { title: "Nodes", cell: (row) => row.nodes, key: (row) => row.nodes, isNumber: true },
  { title: "$ per hour", cell: (row) => perHour(row.cost), key: (row) => row.cost.micros, isNumber: true },
  { title: "Limits", cell: (row) => Object.entries(row.limits).map(([resource, limit]) => `${resource} ${limit}`).join(", ") },
  { title: "Passed over", cell: (row) => row.passedOver ?? "" },
];

function PoolBody({ data }: { data: PoolView }): JSX.Element {
  const { name } = data;
  const hasTemplates = data.templates.length > 0;
  const columns = hasTemplates ? [...NODE_COLUMNS.slice(0, 1), TEMPLATE_COLUMN, ...NODE_COLUMNS.slice(1)] : NODE_COLUMNS;
  return (
    <>
      <p class="sum" aria-live="polite">{counted(data.nodes.length, "node")}, {counted(data.pods, "pod")}, {perHour(data.cost)}/h <States states={data.states} /></p>
      <p>Used by {data.tenants.length > 0 ? data.tenants.map((tenant, index) => <>{index > 0 ? ", " : ""}<a href={link("tenants", tenant)}>{tenant}</a></>) : "no tenant"}</p>
      <Limits limits={data.limits} />
      {hasTemplates ? <Table caption={`Templates of pool ${name}`} rows={data.templates} columns={TEMPLATE_COLUMNS} id={byName} empty="" /> : null}
      {data.nodes.length > 0 ? <Blocks nodes={data.nodes} label={`Nodes of pool ${name}`} /> : null}
      <h2>Nodes</h2>
      <Table caption={`Nodes of pool ${name}`} rows={data.nodes} columns={columns} id={byName} text={(node) => `${node.name} ${node.template ?? ""} ${node.state} ${node.instanceType} ${node.zone} ${node.capacityType}`} empty="It has no node." />
    </>
  );
}

export function PoolPage({ name }: { name: string }): JSX.Element {
  const concerns = (change: Change, data: PoolView): boolean =>
    change.pools.includes(name) || change.nodes.some((node) => node.pool === name) || data.nodes.some((node) => change.gone.includes(node.name));
  const live = useLive<PoolNow>(pathOf("pools", name), concerns, patchPool);
  return (
    <View title={`Pool ${name}`} live={live}>
      {(data) => (
        <Timed<PoolView> begins={data.begins} path={pathOf("at", "pools", name)} then={(view) => <PoolBody data={view} />} now={() => (
          <>
            <PoolBody data={data} />
            <h2>Conditions</h2>
            <Conditions conditions={data.conditions} />
          </>
        )} />
      )}
    </View>
  );
}

/** Pods that an entry or an answer names. */
export function PodLinks({ pods }: { pods: string[] }): JSX.Element {
  const more = pods.length - PODS_NAMED;
  return <>{pods.slice(0, PODS_NAMED).map((pod, at) => <>{at > 0 ? ", " : ""}<a href={link("pods", ...pod.split("/"))}>{pod}</a></>)}{more > 0 ? ` and ${more} more` : ""}</>;
}

const TYPE_COLUMNS: Column<TypePrice>[] = [
  { title: "Type", cell: (row) => row.instanceType, key: (row) => row.instanceType },
  { title: "Price today", cell: (row) => price(row.price, row.estimated), key: (row) => row.price ?? -1, isNumber: true },
  { title: "Launched", cell: (row) => row.chosen ? <b class="good">this one</b> : "" },
];

function LaunchView({ launch: { at, reason, pods, choice } }: { launch: Launch }): JSX.Element {
  return (
    <section aria-labelledby="launch">
      <h2 id="launch">Why it was launched</h2>
      <p>Its NodeClaim was requested at {moment(at)}{pods.length > 0 ? <> for {counted(pods.length, "pod")}: <PodLinks pods={pods} /></> : ` for ${reason}`}{choice?.replaces ? `, to replace ${choice.replaces}` : ""}.{pods.length > 0 && reason ? ` Reason: ${reason}.` : ""}</p>
      {choice ? (
        <>
          <p>Of the types that its pods and its pool allow in {choice.zones.join(", ") || "every zone"}, {choice.capacityType}, the cloud launched one{choice.others > 0 ? `; ${counted(choice.others, "other type")} aren't in the log` : ""}.</p>
          <Table caption="Types that were requested" rows={choice.types} columns={TYPE_COLUMNS} id={(row) => row.instanceType} empty="" />
        </>
      ) : null}
    </section>
  );
}

/** The condition that says what keeps a node, and on request a search for a cheaper cluster without it. */
function KeptView({ data }: { data: NodeDetail }): JSX.Element {
  const { kept } = data;
  const { data: removal, error, button } = useAsked<NodeRemoval>(pathOf("nodes", data.name, "removal"));
  return (
    <section aria-labelledby="kept">
      <h2 id="kept">What keeps it</h2>
      {kept ? <p>{kept.status === "True" ? "It may be removed" : "It is kept"} ({kept.reason}){kept.message ? `: ${kept.message}` : ""}.</p> : null}
      <p>Would consolidation remove it now, and which pods forbid that? {button}</p>
      <div aria-live="polite">
        {error ? <p role="alert" class="error">{error}</p> : null}
        {removal ? (
          <>
            <p class="sum">{removal.answer ?? "The answer concerns pods or nodes that you may not see."}</p>
            {removal.pods.length > 0 ? <ul class="reasons">{removal.pods.map((pod) => <li><a href={link("pods", pod.namespace, pod.name)}>{pod.namespace}/{pod.name}</a>: <b class="note">{pod.reason}</b>: {pod.message}</li>)}</ul> : <p>None of the pods that you may see forbids it.</p>}
          </>
        ) : null}
      </div>
    </section>
  );
}

export function NodePage({ name }: { name: string }): JSX.Element {
  const concerns = (change: Change, data: NodeDetail): boolean =>
    change.log || change.gone.includes(data.name) || change.nodes.some((node) => node.name === data.name || node.claim === name);
  const live = useLive<NodeDetail>(pathOf("nodes", name), concerns);
  return (
    <View title={`Node ${name}`} live={live}>
      {(data) => (
        <>
          {data.node ? (
            <>
              <p class="sum"><State state={data.node.state} /> {data.node.instanceType} in {data.node.zone}, {data.node.capacityType}, {price(data.node.price, data.node.estimated)}{data.node.since === null ? "" : `, for ${age(data.node.since, Date.now())}`}</p>
              <p>{data.node.pool ? <>Pool <a href={link("pools", data.node.pool)}>{data.node.pool}</a>{data.node.template ? `, template ${data.node.template}` : ""}</> : "It has no pool's label."}{data.node.claim ? `, NodeClaim ${data.node.claim}` : ""}</p>
              <Usage node={data.node} />
            </>
          ) : <p class="sum">It is gone.</p>}
          {data.launch ? <LaunchView launch={data.launch} /> : null}
          {data.node ? <KeptView data={data} /> : null}
          {data.node ? <AdviceView path={pathOf("nodes", data.name, "advice")} what="this node, its pods and its pool" /> : null}
          <h2>Timeline</h2>
          <Timeline entries={data.timeline} empty="The log names nothing of this node." />
          <h2>Pods</h2>
          <Pods caption={`Pods on node ${name}`} pods={data.pods} empty="None of the pods that you may see runs here." />
          {data.conditions.length > 0 ? <><h2>Conditions</h2><Conditions conditions={data.conditions} /></> : null}
        </>
      )}
    </View>
  );
}

export function PodPage({ namespace, name }: { namespace: string; name: string }): JSX.Element {
  const live = useLive<PodDetail>(pathOf("pods", namespace, name), (change) => change.log || change.namespaces.includes(namespace));
  return (
    <View title={`Pod ${namespace}/${name}`} live={live}>
      {(data) => (
        <>
          {data.pod ? (
            <>
              <p class="sum">{data.pod.phase}{data.pod.node ? <> on <a href={link("nodes", data.pod.node)}>{data.pod.node}</a></> : ", without a node"}{data.pod.tenant ? <>, tenant <a href={link("tenants", data.pod.tenant)}>{data.pod.tenant}</a></> : ""}{data.pod.workload ? `, of ${data.pod.workload}` : ""}</p>
              {data.node ? <p>It runs in pool {data.node.pool ? <a href={link("pools", data.node.pool)}>{data.node.pool}</a> : "none"}, on {data.node.instanceType} in {data.node.zone}, {data.node.capacityType}, {price(data.node.price, data.node.estimated)}.</p> : null}
              {data.here ? <p class="here">{data.here}</p> : null}
              {(data.pod.violations ?? []).map((text) => <p class="bad">{text}</p>)}
              {data.pod.nominated ? <p>It is nominated for node {data.pod.nominated}.</p> : null}
            </>
          ) : <p class="sum">It is gone, or finished.</p>}
          {data.pod && !data.pod.node ? (
            <section aria-labelledby="pending">
              <h2 id="pending">Why it is pending</h2>
              {data.pod.reason ? <p><b class="note">{data.pod.reason}</b>: {data.pod.message}</p> : null}
              {data.outlook?.instance ? <p class="good">An instance can be launched for it: {data.outlook.instance.instanceType} in {data.outlook.instance.zone}, {data.outlook.instance.capacityType}, in pool {data.outlook.instance.pool}, {price(data.outlook.instance.price, data.outlook.instance.estimated)}.</p> : null}
              {data.outlook?.node ? <p class="good">The {data.outlook.node.coming ? "coming node" : "node"} {data.outlook.node.node} has room for it; kube-scheduler binds it.</p> : null}
              {data.outlook && data.outlook.reasons.length > 0 ? <Reasons reasons={data.outlook.reasons} /> : null}
              {data.outlook === null ? <p>A plan is being computed for others; it is read again after the next change.</p> : null}
            </section>
          ) : null}
          {data.pod?.node ? <AdviceView path={pathOf("pods", namespace, name, "advice")} what="this pod" /> : null}
          <h2>Timeline</h2>
          <Timeline entries={data.timeline} empty="The log names nothing of this pod." />
        </>
      )}
    </View>
  );
}

/** $/h, waiting pods, and nodes that came and went. */
export function CurvesPage(): JSX.Element {
  return <View title="Curves" live={{ data: true, error: undefined }}>{() => <CurvesBody />}</View>;
}

/** An address that the page has no view for. */
export function UnknownPage({ address }: { address: string }): JSX.Element {
  return (
    <View title="No such page" live={{ data: true, error: undefined }}>
      {() => <p>There is no page at the address <code>{address}</code>. <a href={link()}>The overview</a> leads to every tenant and pool; <code>#/nodes/NAME</code> and <code>#/pods/NAMESPACE/NAME</code> show one node or pod.</p>}
    </View>
  );
}
