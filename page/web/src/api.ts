// The JSON API of croft-page: its types, requests, and events. Prices are millionths of a dollar per hour, bills millionths of a
// dollar, times milliseconds since 1970, CPU thousandths, memory bytes.

export interface Cost { micros: number; unknown: number; estimated: boolean }
export type NodeState = "launching" | "ready" | "notReady" | "draining" | "blocked" | "interrupted";
export const STATES: readonly NodeState[] = ["launching", "ready", "notReady", "draining", "blocked", "interrupted"];

export interface Session { cluster: string; user: string; operator: boolean; tenants: string[]; namespaces: string[] }
export interface Condition { type: string; status: string; reason: string; message: string; since: number; healthy: boolean }
export interface NodeView {
  name: string; claim: string | null; pool: string | null; template?: string; instanceType: string; zone: string; capacityType: string;
  price: number | null; estimated: boolean; state: NodeState; since: number | null; reason: string;
  cpu: number; memory: number; usedCpu: number; usedMemory: number; pods: number; useCpu?: number; useMemory?: number;
}
/** The nodes of a pool, those of one template side by side; its name is null for nodes of no pool. */
export interface MapPool { name: string | null; tenants: string[]; nodes: NodeView[] }
export interface MapView { version: number; pools: MapPool[] }
export interface PodFacts {
  namespace: string; name: string; node: string | null; phase: string; tenant: string | null; workload: string;
  cpu: number; memory: number; since: number | null; reason: string; message: string; nominated: string | null;
  violations?: string[];
}
export interface TenantRow {
  name: string; pools: string[]; namespaces: number; pods: number; pending: number; violations: number; nodes: number;
  cost: Cost; ready: string;
}
export interface PoolRow {
  name: string; tenants: string[]; states: Partial<Record<NodeState, number>>; pods: number; cost: Cost; ready: string;
}
/** A bound of 0 for instances is one that isn't known: the price of an instance isn't. */
export interface PlanFigures {
  inputs: string; instances: number; pods: number; placed: number; unschedulable: number; cost: number; bound: number; steps: number;
}
/** $/h of a tenant on a pool, at the times of the curves. */
export interface Series { tenant: string; pool: string; rates: number[] }
export interface Run { at: number; instances: number; cost: number; bound: number }
/** `null` is not known, which isn't zero. */
export type Known = number | null;
export interface Curves {
  from: number; to: number; step: number; begins: number | null; isComplete: boolean; at: number[]; series: Series[];
  waiting: Known[] | null; launched: Known[]; removed: Known[]; runs: Run[] | null;
}
/** Pending pods of one workload for one reason. */
export interface PendingGroup {
  namespace: string; tenant: string | null; workload: string; reason: string; message: string; count: number; pods: string[];
  cpu: number; memory: number; since: number | null;
}
/** An entry of the decision log, with the short names of its stored form. */
export interface Entry {
  n: number; t: number; k: string; o?: string; claim?: string; node?: string; pool?: string; ten?: string[]; pods?: string[];
  c?: string; r?: string; m?: string; usd?: number; plan?: PlanFigures;
}
export interface Rows {
  version: number; at: number; tenants: TenantRow[]; pools: PoolRow[]; cost: Cost;
  pendingGroups: PendingGroup[]; violations: PodFacts[];
}
/** Since when the record can show the past. */
export interface Present { begins: number | null }
export interface Overview extends Rows, Present { changes: Entry[] }
/** A kind of nodes of a pool; the heaviest comes first. */
export interface TemplateView {
  name: string; weight: number; limits: Record<string, string>; nodes: number; cost: Cost; passedOver: string | null;
}
/** Without templates its nodes are of one kind. */
export interface PoolView extends PoolRow {
  version: number; limits: Record<string, string>; conditions: Condition[]; templates: TemplateView[]; nodes: NodeView[];
}
export interface Bill {
  from: number; to: number; begins: number | null; total: number; committed: number; purposes: Record<string, number>;
  namespaces: Record<string, number>;
}
export interface TenantView extends TenantRow {
  version: number; namespaceNames: string[]; isWhole: boolean; limits: Record<string, string>; conditions: Condition[];
  poolRows: PoolRow[];
}
export interface TenantNow extends TenantView, Present { bill: Bill }
export interface TenantThen extends TenantView { podList: PodFacts[] }
export interface PoolNow extends PoolView, Present {}
export interface TypePrice { instanceType: string; price: number | null; estimated: boolean; chosen: boolean }
export interface LaunchChoice { types: TypePrice[]; others: number; zones: string[]; capacityType: string; replaces: string | null }
export interface Launch { at: number; reason: string; pods: string[]; choice: LaunchChoice | null }
export interface NodeDetail {
  version: number; name: string; node: NodeView | null; conditions: Condition[]; launch: Launch | null;
  kept: Condition | null; pods: PodFacts[]; timeline: Entry[];
}
export interface NodeRemoval { answer: string | null; pods: { namespace: string; name: string; reason: string; message: string }[] }
export interface Reason { pool: string; reason: string; detail: string; remedy: string | null }
export interface NewInstance {
  pool: string; instanceType: string; zone: string; capacityType: string; price: number | null; estimated: boolean; pods: string[];
}
export interface ExistingNode { node: string; coming: boolean; pods: string[] }
export interface Outlook { instance: NewInstance | null; node: ExistingNode | null; reasons: Reason[] }
export interface PodDetail {
  version: number; namespace: string; name: string; pod: PodFacts | null; node: NodeView | null; here: string | null; outlook: Outlook | null;
  timeline: Entry[];
}
export interface Planned {
  kind: string; namespace: string; name: string; template?: string; pods?: number; tenant: string | null; pool: string | null;
  outcome: string; message?: string; note?: string; warnings?: string[]; shortfall?: { message: string };
}
export interface AdviceRow { saving: number; namespace: string | null; kind: string; object: string; constraint: string; change: string }
export interface Advice { rows: AdviceRow[]; together: number; constraints: number; notTried: number }
export interface WhatIf {
  workloads: Planned[]; instances: NewInstance[]; existing: ExistingNode[]; pending: { pods: string[]; reasons: Reason[] }[];
  adds: number; unpriced: number; warnings: string[];
}
export interface PastNode {
  claim: string; node: string; pool: string; tenants: string[]; phase: string; price: number | null; pods: number;
}
/** A view at a time: of the last snapshot before it, or without one the nodes that the log names. */
export interface Past<T> { at: number; snapshot: number | null; view: T | null; nodes: PastNode[]; changes: Entry[] }
export interface Change {
  version: number; reset: boolean; nodes: NodeView[]; gone: string[]; namespaces: string[]; tenants: string[]; pools: string[];
  log: boolean;
}

/** A request that was refused, or that didn't arrive. */
export class ApiError extends Error {
  constructor(readonly status: number, message: string) { super(message); }
}

export async function request<T>(path: string, init: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`/api/v1/${path}`, { credentials: "same-origin", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "the page's server can't be reached; croft page may have ended");
  }
  if (response.status === 204) return undefined as T;
  const body: unknown = await response.json().catch((error: unknown) => {
    // A body that was no longer wanted, or that ended early, is no answer.
    if (response.ok) throw error instanceof DOMException ? error : new ApiError(0, "the answer of the page's server ended early");
    return { error: `answer ${response.status}` };
  });
  if (!response.ok) throw new ApiError(response.status, (body as { error?: string }).error ?? `answer ${response.status}`);
  return body as T;
}

export const signIn = (token: string): Promise<Session> =>
  request<Session>("session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
export const signOut = (): Promise<void> => request<void>("session", { method: "DELETE" });

type Listener = (change: Change) => void;
const listeners = new Set<Listener>();
let source: EventSource | undefined;

/** Calls `listener` for each change until the returned function is called. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => { listeners.delete(listener); };
}

/** Opens the stream of events; `onState` is told whether it is open. After a gap everything is read again. */
export function connect(onState: (open: boolean) => void): () => void {
  let gap = false;
  source = new EventSource("/api/v1/events");
  source.onopen = () => {
    onState(true);
    if (gap) emit({ version: 0, reset: true, nodes: [], gone: [], namespaces: [], tenants: [], pools: [], log: true });
    gap = false;
  };
  source.onerror = () => { gap = true; onState(false); };
  source.addEventListener("change", (event) => emit(JSON.parse((event as MessageEvent<string>).data) as Change));
  return () => { source?.close(); source = undefined; };
}

function emit(change: Change): void {
  for (const listener of [...listeners]) listener(change);
}
