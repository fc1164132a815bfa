// Parts that several views show.

import type { ComponentChildren, JSX } from "preact";
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Condition, type Entry, type NodeState, type NodeView, type PodFacts, type Reason, STATES } from "./api";
import { age, clock, cores, counted, dollars, gib, moment, named, percent } from "./format";
import { link } from "./route";

const ROW = 30;
/** Rows that a table shows at once. */
const IN_VIEW = 15;

export interface Column<T> {
  title: string;
  /** Text or elements of a cell. */
  cell: (row: T) => ComponentChildren;
  /** The value by which rows are sorted; without it the column isn't sortable. */
  key?: (row: T) => string | number;
  isNumber?: boolean;
}

/** Rows that are printed at most. */
const PRINTED = 5_000;
/** Rows by which the rendered part moves: between, scrolling renders nothing. */
const STRIDE = 8;

/** A row, rendered again only if its object or its place differs. */
class Row<T> extends Component<{ row: T; columns: Column<T>[]; index: number }> {
  override shouldComponentUpdate(next: { row: T; columns: Column<T>[]; index: number }): boolean {
    const { row, columns, index } = this.props;
    return next.row !== row || next.columns !== columns || next.index !== index;
  }

  render({ row, columns, index }: { row: T; columns: Column<T>[]; index: number }): JSX.Element {
    return (
      <tr aria-rowindex={index}>
        {columns.map((column) => <td class={column.isNumber ? "number" : undefined}>{column.cell(row)}</td>)}
      </tr>
    );
  }
}

/** A table that renders the rows in view, sorts and filters. Printing renders every row. */
export function Table<T>(props: {
  caption: string; rows: T[]; columns: Column<T>[]; id: (row: T) => string; text?: (row: T) => string; empty: string;
}): JSX.Element {
  const { caption, rows, columns, id, text, empty } = props;
  const [sort, setSort] = useState<{ at: number; down: boolean }>({ at: -1, down: false });
  const [filter, setFilter] = useState("");
  const [first, setFirst] = useState(0);
  const [all, setAll] = useState(false);
  const scroller = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = (): void => setAll(true);
    const after = (): void => setAll(false);
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => { removeEventListener("beforeprint", before); removeEventListener("afterprint", after); };
  }, []);
  const shown = useMemo(() => {
    const wanted = filter.toLowerCase();
    const kept = text && wanted ? rows.filter((row) => text(row).toLowerCase().includes(wanted)) : rows;
    const key = columns[sort.at]?.key;
    if (!key) return kept;
    const sign = sort.down ? -1 : 1;
    return [...kept].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return x < y ? -sign : x > y ? sign : 0;
    });
  }, [rows, columns, sort, filter]);
  if (rows.length === 0) return <p class="empty">{empty}</p>;
  const from = all ? 0 : Math.min(first, Math.max(0, shown.length - IN_VIEW));
  const last = all ? Math.min(shown.length, PRINTED) : Math.min(shown.length, from + IN_VIEW + 3 * STRIDE);
  const follow = (event: JSX.TargetedEvent<HTMLDivElement>): void => {
    const top = Math.floor(event.currentTarget.scrollTop / ROW);
    setFirst(Math.max(0, (Math.floor(top / STRIDE) - 1) * STRIDE));
  };
  return (
    <div class="table">
      {text && rows.length > 15 ? (
        <label class="filter">Filter <input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /> <span>{shown.length} of {rows.length}</span></label>
      ) : null}
      <div class="scroll" ref={scroller} tabIndex={shown.length > 15 ? 0 : undefined} role={shown.length > 15 ? "region" : undefined}
        aria-label={shown.length > 15 ? caption : undefined} onScroll={follow}>
        <table aria-rowcount={shown.length + 1}>
          <caption class="hidden">{caption}</caption>
          <thead><tr>
            {columns.map((column, at) => (
              <th scope="col" class={column.isNumber ? "number" : undefined}
                aria-sort={column.key ? (sort.at === at ? (sort.down ? "descending" : "ascending") : "none") : undefined}>
                {column.key ? (
                  <button type="button" onClick={() => setSort({ at, down: sort.at === at ? !sort.down : column.isNumber ?? false })}>
                    {column.title}<span aria-hidden="true">{sort.at === at ? (sort.down ? " ▾" : " ▴") : ""}</span>
                  </button>
                ) : column.title}
              </th>
            ))}
          </tr></thead>
          <tbody>
            {from > 0 ? <tr aria-hidden="true" style={{ height: from * ROW }} /> : null}
            {shown.slice(from, last).map((row, at) => <Row key={id(row)} row={row} columns={columns} index={from + at + 2} />)}
            {last < shown.length ? <tr aria-hidden="true" style={{ height: (shown.length - last) * ROW }} /> : null}
          </tbody>
        </table>
      </div>
      {filter && shown.length < rows.length ? <p class="print">{shown.length} of {rows.length} rows: those with "{filter}".</p> : null}
      {shown.length > PRINTED ? <p class="print note">The first {PRINTED} of {shown.length} rows are printed: filter the table to print others.</p> : null}
    </div>
  );
}

const STATE_TEXT: Record<NodeState, string> = {
  launching: "launching", ready: "ready", notReady: "not ready", draining: "draining", blocked: "blocked", interrupted: "interrupted",
};
/** A sign beside the colour, for readers who don't tell the colours apart. */
export const STATE_SIGN: Record<NodeState, string> = {
  launching: "…", ready: "", notReady: "!", draining: "↓", blocked: "×", interrupted: "⚡",
};

export function State({ state }: { state: NodeState }): JSX.Element {
  return <span class={`state ${state}`}>{STATE_SIGN[state]} {STATE_TEXT[state]}</span>;
}

export function States({ states }: { states: Partial<Record<NodeState, number>> }): JSX.Element {
  return <span class="states">{STATES.filter((state) => states[state]).map((state) => <span class={`state ${state}`}>{states[state]} {STATE_TEXT[state]}</span>)}</span>;
}

/** A node in a sentence: what its block shows. */
export function describe(node: NodeView): string {
  const use = node.useCpu === undefined ? "" : `, used ${percent(node.useCpu, node.cpu)} of CPU and ${percent(node.useMemory ?? 0, node.memory)} of memory`;
  return `${node.name}: ${STATE_TEXT[node.state]}${node.reason ? `, ${node.reason}` : ""}, ${node.instanceType} in ${node.zone}, ${counted(node.pods, "pod")}, CPU ${percent(node.usedCpu, node.cpu)}, memory ${percent(node.usedMemory, node.memory)} requested${use}`;
}

/** The meaning of area, fill, colour and sign of a block. */
export function BlockLegend({ hasUse = false }: { hasUse?: boolean }): JSX.Element {
  return <p class="legend">{STATES.map((state) => <State state={state} />)} <span>area: CPU; fill: the larger share of CPU and memory requested{hasUse ? "; strip at the left: the larger share used, hatched where it isn't known" : ""}</span></p>;
}

/** A node as a block: its area is its CPU, its fill the requests. Drawn again only if the node differs. */
class Block extends Component<{ node: NodeView; isActive: boolean }> {
  override shouldComponentUpdate(next: { node: NodeView; isActive: boolean }): boolean {
    return next.node !== this.props.node || next.isActive !== this.props.isActive;
  }

  render({ node, isActive }: { node: NodeView; isActive: boolean }): JSX.Element {
    const side = Math.round(Math.min(84, Math.max(24, 16 * Math.sqrt(node.cpu / 1000))));
    const share = Math.max(node.cpu > 0 ? node.usedCpu / node.cpu : 0, node.memory > 0 ? node.usedMemory / node.memory : 0);
    const label = describe(node);
    return (
      <li>
        <a href={link("nodes", node.name)} class={`block ${node.state}`} title={label} aria-label={label} tabIndex={isActive ? 0 : -1}
          style={{ width: side, height: side, "--fill": `${Math.round(100 * Math.min(1, share))}%` }}>
          <span aria-hidden="true">{STATE_SIGN[node.state]}</span>
        </a>
      </li>
    );
  }
}

/** Nodes that are drawn together: none is looked at again while all are the same. */
const CHUNK = 50;

class Chunk extends Component<{ nodes: NodeView[]; from: number; active: number }> {
  override shouldComponentUpdate(next: { nodes: NodeView[]; from: number; active: number }): boolean {
    const { nodes, from, active } = this.props;
    const isIn = (at: number): number => at >= from && at < from + CHUNK ? at : -1;
    if (next.from !== from || isIn(next.active) !== isIn(active)) return true;
    for (let at = from; at < from + CHUNK; at++) if (next.nodes[at] !== nodes[at]) return true;
    return false;
  }

  render({ nodes, from, active }: { nodes: NodeView[]; from: number; active: number }): JSX.Element {
    return <>{nodes.slice(from, from + CHUNK).map((node, at) => <Block key={node.name} node={node} isActive={from + at === active} />)}</>;
  }
}

/** The nodes of a pool. One of them is a tab stop; the arrow keys move between them. */
export function Blocks({ nodes, label }: { nodes: NodeView[]; label: string }): JSX.Element {
  const [active, setActive] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const at = Math.min(active, Math.max(0, nodes.length - 1));
  const move = (event: JSX.TargetedKeyboardEvent<HTMLUListElement>): void => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowDown: 10, ArrowLeft: -1, ArrowUp: -10, Home: -nodes.length, End: nodes.length };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(nodes.length - 1, at + step));
    setActive(next);
    const target = list.current?.children[next]?.firstElementChild;
    if (target instanceof HTMLElement) target.focus();
  };
  return (
    <>
      <BlockLegend />
      <ul class="blocks" aria-label={label} ref={list} onKeyDown={move}>
        {Array.from({ length: Math.ceil(nodes.length / CHUNK) }, (_, chunk) => <Chunk key={chunk} nodes={nodes} from={chunk * CHUNK} active={at} />)}
      </ul>
    </>
  );
}

export function Usage({ node }: { node: NodeView }): JSX.Element {
  return (
    <dl class="facts">
      <dt>CPU</dt><dd>{cores(node.usedCpu)} of {cores(node.cpu)} ({percent(node.usedCpu, node.cpu)}) <Bar part={node.usedCpu} whole={node.cpu} /></dd>
      <dt>Memory</dt><dd>{gib(node.usedMemory)} of {gib(node.memory)} ({percent(node.usedMemory, node.memory)}) <Bar part={node.usedMemory} whole={node.memory} /></dd>
    </dl>
  );
}

function Bar({ part, whole }: { part: number; whole: number }): JSX.Element {
  return <span class="bar" aria-hidden="true"><span style={{ width: `${whole > 0 ? Math.min(100, (100 * part) / whole) : 0}%` }} /></span>;
}

export function Conditions({ conditions }: { conditions: Condition[] }): JSX.Element | null {
  if (conditions.length === 0) return null;
  return (
    <ul class="conditions" aria-label="Conditions">
      {conditions.map((one) => (
        <li><b class={one.healthy ? "good" : "note"}>{one.type}={one.status}</b> ({one.reason}){one.message ? `: ${one.message}` : ""} <time>{moment(one.since)}</time></li>
      ))}
    </ul>
  );
}

/** The object of an entry as a link, where the page has a view of it. */
function Subject({ entry }: { entry: Entry }): JSX.Element | null {
  if (entry.k === "plan") return <a href={link("plans", `${entry.t}`)}>scheduling run</a>;
  const [kind, second, third] = (entry.o ?? "").split("/");
  if (!kind || !second) return entry.node ? <a href={link("nodes", entry.node)}>{entry.node}</a> : null;
  switch (kind) {
    case "Pod": return third ? <a href={link("pods", second, third)}>{second}/{third}</a> : <>{entry.o}</>;
    case "Node": case "NodeClaim": return <a href={link("nodes", second)}>{entry.o}</a>;
    case "TenantPool": return <a href={link("pools", second)}>{entry.o}</a>;
    case "Tenant": return <a href={link("tenants", second)}>{entry.o}</a>;
    default: return <>{entry.o}</>;
  }
}

function why(entry: Entry): string {
  const what = entry.c ? `${entry.c}${entry.r ? ` (${entry.r})` : ""}` : entry.r ?? "";
  const pods = entry.pods?.length ? `${counted(entry.pods.length, "pod")}: ${named(entry.pods, 3)}` : "";
  const cost = entry.usd !== undefined && entry.k === "state" ? `${dollars(entry.usd)}/h` : "";
  const run = entry.plan ? `${counted(entry.plan.instances, "instance")} for ${counted(entry.plan.pods, "pod")}, ${dollars(entry.plan.cost)}/h${entry.plan.bound > 0 ? `, no plan below ${dollars(entry.plan.bound)}/h` : ""}` : "";
  return [what, entry.m ?? "", run, cost, pods].filter((part) => part !== "").join(": ");
}

export function Timeline({ entries, empty }: { entries: Entry[]; empty: string }): JSX.Element {
  if (entries.length === 0) return <p class="empty">{empty}</p>;
  const day = (entry: Entry): string => new Date(entry.t).toISOString().slice(0, 10);
  return (
    <ol class="timeline">
      {entries.map((entry, at) => (
        <li key={`${entry.n}-${entry.t}`}>
          {at === 0 || day(entries[at - 1]!) !== day(entry) ? <span class="day">{day(entry)}</span> : null}
          <time dateTime={new Date(entry.t).toISOString()}>{clock(entry.t)}</time> <b>{entry.k.replace("_", " ")}</b> <Subject entry={entry} /> <span>{why(entry)}</span>
        </li>
      ))}
    </ol>
  );
}

/** Pods as a table; their ages are those at the time `at`, or now. */
export function Pods({ pods, caption, empty, at }: { pods: PodFacts[]; caption: string; empty: string; at?: number }): JSX.Element {
  const columns = useMemo(() => podColumns(at), [at]);
  return <Table caption={caption} rows={pods} columns={columns} id={podId} text={podText} empty={empty} />;
}

const podId = (pod: PodFacts): string => `${pod.namespace}/${pod.name}`;
const podText = (pod: PodFacts): string => `${pod.namespace}/${pod.name} ${pod.node ?? "pending"} ${pod.phase} ${pod.workload} ${pod.reason}`;
const podColumns = (at: number | undefined): Column<PodFacts>[] => [
  { title: "Pod", cell: (pod) => <a href={link("pods", pod.namespace, pod.name)}>{pod.namespace}/{pod.name}</a>, key: podId },
  { title: "Node", cell: (pod) => pod.node ? <a href={link("nodes", pod.node)}>{pod.node}</a> : <span class="note">pending{pod.reason ? `: ${pod.reason}` : ""}</span>, key: (pod) => pod.node ?? "" },
  { title: "Workload", cell: (pod) => pod.workload, key: (pod) => pod.workload },
  { title: "CPU", cell: (pod) => cores(pod.cpu), key: (pod) => pod.cpu, isNumber: true },
  { title: "Memory", cell: (pod) => gib(pod.memory), key: (pod) => pod.memory, isNumber: true },
  { title: "Age", cell: (pod) => age(pod.since, at ?? Date.now()), key: (pod) => -(pod.since ?? 0), isNumber: true },
];

export function Reasons({ reasons }: { reasons: Reason[] }): JSX.Element {
  return (
    <ul class="reasons">
      {reasons.map((reason) => (
        <li>{reason.pool ? <>pool <a href={link("pools", reason.pool)}>{reason.pool}</a>: </> : null}<b class="note">{reason.reason}</b>: {reason.detail}
          {reason.remedy ? <p class="remedy">{reason.remedy}</p> : null}</li>
      ))}
    </ul>
  );
}
