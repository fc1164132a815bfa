// The log by decisions: what was launched, removed, left pending; each with its entries.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Entry } from "./api";
import { clock, counted, dollars, named } from "./format";
import { Timeline } from "./parts";

type Kind = "launch" | "removal" | "pending" | "other";
const KINDS: Record<Kind, string> = { launch: "launches", removal: "removals", pending: "pending pods", other: "other decisions" };
const LAUNCH = new Set(["create", "bound"]);
const LAUNCHED = new Set(["Launched", "Registered", "Initialized"]);
const REMOVAL = new Set(["evicted", "eviction_blocked", "delete", "deleting", "gone", "terminate", "ended"]);
/** Entries of one decision are written within this time. */
const TOGETHER = 120_000;

/** Entries of one decision, the newest first. */
interface Decision { key: string; kind: Kind; pool: string; entries: Entry[] }

/** The NodeClaim of an entry; empty if it has none. */
export const claimOf = (entry: Entry): string => entry.claim ?? (entry.o?.startsWith("NodeClaim/") ? entry.o.slice("NodeClaim/".length) : "");

function kindOf(entry: Entry): Kind {
  if (LAUNCH.has(entry.k) || (entry.k === "condition" && LAUNCHED.has(entry.c?.split("=")[0] ?? ""))) return "launch";
  if (REMOVAL.has(entry.k)) return "removal";
  return entry.k === "pending" ? "pending" : "other";
}

/** The decisions of entries, which are the newest first; so are the decisions, by their last entry. */
export function decisionsOf(entries: Entry[]): Decision[] {
  const decisions: Decision[] = [];
  const byClaim = new Map<string, Decision>();
  for (const entry of [...entries].reverse()) {
    const [kind, claim, pool] = [kindOf(entry), claimOf(entry), entry.pool ?? ""];
    const ofClaim = claim === "" ? undefined : byClaim.get(`${kind} ${claim}`);
    const isLike = (one: Decision): boolean => {
      const newest = one.entries[0];
      if (one.kind !== kind || newest === undefined || entry.t - newest.t > TOGETHER) return false;
      switch (kind) {
        case "launch": return one.pool === pool && entry.k === "create" && newest.k === "create" && entry.t === newest.t;
        case "removal": return one.pool === pool;
        case "pending": return newest.r === entry.r && (newest.ten ?? []).join() === (entry.ten ?? []).join();
        case "other": return newest.k === entry.k && newest.r === entry.r && newest.o?.split("/")[0] === entry.o?.split("/")[0];
      }
    };
    let decision = ofClaim ?? decisions.find(isLike);
    if (decision === undefined) {
      decision = { key: `${kind}-${entry.n}-${entry.t}`, kind, pool, entries: [] };
      decisions.push(decision);
    }
    decision.entries.unshift(entry);
    if (claim !== "") byClaim.set(`${kind} ${claim}`, decision);
  }
  const last = (decision: Decision): number => decision.entries[0]?.t ?? 0;
  return decisions.sort((a, b) => last(b) - last(a));
}

const namesOf = (entries: Entry[], names: (entry: Entry) => string[]): string[] => [...new Set(entries.flatMap(names).filter((name) => name !== ""))];
const some = (names: string[]): string => named(names, 3);

/** A decision in a sentence: "3 nodes launched for 12 pods of shop, $0.27/h". */
export function sentence(decision: Decision): string {
  const { kind, entries, pool } = decision;
  const claims = namesOf(entries, (entry) => [claimOf(entry)]);
  const tenants = namesOf(entries, (entry) => entry.ten ?? []);
  const of = tenants.length > 0 ? ` of ${some(tenants)}` : "";
  const where = pool ? ` in pool ${pool}` : "";
  const reasons = namesOf(entries, (entry) => [entry.r ?? ""]);
  const why = reasons.length > 0 ? `: ${some(reasons)}` : "";
  switch (kind) {
    case "launch": {
      const pods = namesOf(entries, (entry) => entry.k === "create" || entry.k === "bound" ? entry.pods ?? (entry.o?.startsWith("Pod/") ? [entry.o.slice(4)] : []) : []);
      const launched = namesOf(entries, (entry) => entry.c === "Launched=True" ? [claimOf(entry)] : []).length;
      const prices = new Map<string, number>();
      for (const entry of entries) if (entry.usd !== undefined) prices.set(claimOf(entry), entry.usd);
      const price = [...prices.values()].reduce((sum, one) => sum + one, 0);
      const unknown = claims.length > prices.size ? ` and ${counted(claims.length - prices.size, "node")} of unknown price` : "";
      const done = launched >= claims.length ? `${counted(claims.length, "node")} launched` : launched > 0 ? `${launched} of ${counted(claims.length, "node")} launched` : `${counted(claims.length, "node")} requested`;
      return `${done}${pods.length > 0 ? ` for ${counted(pods.length, "pod")}` : ""}${of}${where}${prices.size > 0 ? `, ${dollars(price)}/h${unknown}` : ""}`;
    }
    case "removal": {
      const gone = namesOf(entries, (entry) => entry.k === "gone" ? [claimOf(entry)] : []).length;
      const blocked = entries.some((entry) => entry.k === "eviction_blocked") && gone < claims.length ? "; an eviction was refused" : "";
      const left = claims.length - gone;
      const done = left <= 0 ? "removed" : gone === 0 ? "being removed" : `removed, ${left} of them not yet`;
      return `${claims.length === 0 ? "pods" : counted(claims.length, "node")}${of}${where} ${claims.length === 0 ? "evicted" : done}${why}${blocked}`;
    }
    case "pending": {
      const pods = namesOf(entries, (entry) => entry.pods ?? []);
      return `${counted(pods.length, "pod")}${of} stayed pending${why}`;
    }
    case "other": {
      const first = entries[0];
      const name = first?.c?.split("=")[0] ?? first?.k.replace("_", " ") ?? "";
      const objects = namesOf(entries, (entry) => [entry.o ?? entry.node ?? ""]);
      return `${name}${entries.length > 1 ? `, ${entries.length} times` : ""}${why}${objects.length > 0 ? ` (${some(objects)})` : ""}`;
    }
  }
}

/** Entries by decision, folded, filtered by kind and tenant. */
export function Log({ entries, empty, hasTenants = true }: { entries: Entry[]; empty: string; hasTenants?: boolean }): JSX.Element {
  const [kind, setKind] = useState("");
  const [tenant, setTenant] = useState("");
  const decisions = useMemo(() => decisionsOf(entries), [entries]);
  const tenants = useMemo(() => namesOf(entries, (entry) => entry.ten ?? []).sort(), [entries]);
  if (entries.length === 0) return <p class="empty">{empty}</p>;
  const shown = decisions.filter((one) => (kind === "" || one.kind === kind) && (tenant === "" || one.entries.some((entry) => entry.ten?.includes(tenant))));
  return (
    <div class="log">
      <p class="controls">
        <label>Kind <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          <option value="">all</option>{Object.entries(KINDS).map(([value, text]) => <option value={value}>{text}</option>)}
        </select></label>{" "}
        {hasTenants && tenants.length > 1 ? (
          <label>Tenant <select value={tenant} onChange={(event) => setTenant(event.currentTarget.value)}>
            <option value="">all</option>{tenants.map((name) => <option value={name}>{name}</option>)}
          </select></label>
        ) : null}
      </p>
      {shown.length === 0 ? <p class="empty">No such decision.</p> : shown.map((one) => (
        <details key={one.key} class={`decision ${one.kind}`}>
          <summary><time dateTime={new Date(one.entries[0]!.t).toISOString()}>{clock(one.entries[0]!.t)}</time> {sentence(one)}</summary>
          <Timeline entries={one.entries} empty="" />
        </details>
      ))}
    </div>
  );
}
