// The map: every node as a block, by tenant and pool.

import type { JSX } from "preact";
import { Component } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Change, type MapPool, type MapView, type NodeState, type NodeView } from "./api";
import { costOf, counted, perHour } from "./format";
import { useLive } from "./live";
import { BlockLegend, STATE_SIGN, States, describe } from "./parts";
import { link } from "./route";

/** The height that all blocks together may fill half of, in pixels. */
const HEIGHT = 420;
const LEAST_SIDE = 9;
/** The least width of a group. */
const LEAST_WIDTH = 190;
const MOST_SIDE = 64;
/** A smaller block has no room for a sign. */
const SIGN_SIDE = 15;
/** Of more nodes, groups without trouble are folded at first. */
const FOLD_ABOVE = 2_000;
/** Nodes that are drawn in one frame. */
const IN_FRAME = 50;

/** A tenant, or tenants that share pools. */
interface Group { key: string; tenants: string[]; pools: MapPool[]; hasPool: boolean }

/** Groups by tenant: those of one tenant first, shared ones, and nodes that are nobody's last. */
function groupsOf(pools: MapPool[]): Group[] {
  const groups = new Map<string, Group>();
  for (const pool of pools) {
    const hasPool = pool.name !== null;
    const key = hasPool ? pool.tenants.join(" + ") : "-";
    const group = groups.get(key) ?? { key, tenants: pool.tenants, pools: [], hasPool };
    group.pools.push(pool);
    groups.set(key, group);
  }
  const rank = (group: Group): number => !group.hasPool ? 3 : group.tenants.length === 0 ? 2 : group.tenants.length === 1 ? 0 : 1;
  return [...groups.values()].sort((a, b) => rank(a) - rank(b) || a.key.localeCompare(b.key, "en", { numeric: true }));
}

const templateOf = (node: NodeView): string => node.template ?? "";

/** Nodes of one template side by side, else in their order. */
const byTemplate = (nodes: NodeView[]): NodeView[] => nodes.sort((a, b) => templateOf(a) < templateOf(b) ? -1 : Number(templateOf(a) > templateOf(b)));

/** The runs of nodes of one template. */
function runsOf(nodes: NodeView[]): NodeView[][] {
  const runs: NodeView[][] = [];
  for (const node of nodes) {
    const last = runs.at(-1);
    const first = last?.[0];
    if (last !== undefined && first !== undefined && templateOf(first) === templateOf(node)) last.push(node);
    else runs.push([node]);
  }
  return runs;
}

/** Puts the nodes of a change into the map, without a read. Pools that don't differ stay the same objects. */
export function patchMap(change: Change, data: MapView): MapView | undefined {
  if (change.pools.length > 0 || change.tenants.length > 0) return undefined;
  const changed = new Map(change.nodes.map((node) => [node.name, node]));
  const gone = new Set(change.gone);
  const pools: MapPool[] = [];
  for (const pool of data.pools) {
    let differs = false;
    const nodes: NodeView[] = [];
    for (const node of pool.nodes) {
      const next = changed.get(node.name);
      if (next === undefined && !gone.has(node.name)) { nodes.push(node); continue; }
      differs = true;
      if (next !== undefined && next.pool === pool.name && !gone.has(node.name)) { nodes.push(next); changed.delete(node.name); }
    }
    pools.push(differs ? { ...pool, nodes } : pool);
  }
  for (const node of changed.values()) {
    if (gone.has(node.name)) continue;
    const at = pools.findIndex((pool) => pool.name === node.pool);
    const pool = pools[at];
    // A pool that had no node has to be read with its tenants.
    if (pool === undefined) return undefined;
    pools[at] = { ...pool, nodes: byTemplate([...pool.nodes, node]) };
  }
  return { version: change.version, pools: pools.filter((pool) => pool.nodes.length > 0) };
}

const share = (part: number, whole: number): number => whole > 0 ? Math.min(1, part / whole) : 0;
const inPercent = (value: number): string => `${Math.round(100 * value)}%`;

const sideOf = (node: NodeView, scale: number): number => Math.round(Math.min(MOST_SIDE, Math.max(LEAST_SIDE, scale * Math.sqrt(node.cpu / 1000))));

interface BlockProps { node: NodeView; scale: number; isActive: boolean; hasUse: boolean }

/** A node: its area is its CPU, its fill the requests, its left strip the use, hatched where only other nodes' use is known. Drawn again only if the node differs. */
class MapBlock extends Component<BlockProps> {
  override shouldComponentUpdate(next: BlockProps): boolean {
    const { node, scale, isActive, hasUse } = this.props;
    return next.node !== node || next.scale !== scale || next.isActive !== isActive || next.hasUse !== hasUse;
  }

  render({ node, scale, isActive, hasUse }: BlockProps): JSX.Element {
    const side = sideOf(node, scale);
    const label = describe(node);
    const requested = Math.max(share(node.usedCpu, node.cpu), share(node.usedMemory, node.memory));
    const used = Math.max(share(node.useCpu ?? 0, node.cpu), share(node.useMemory ?? 0, node.memory));
    return (
      <li>
        <a href={link("nodes", node.name)} class={`block ${node.state}${hasUse && node.useCpu === undefined ? " unmeasured" : ""}`} title={label} aria-label={label} tabIndex={isActive ? 0 : -1} data-node={node.name}
          style={{ width: side, height: side, "--fill": inPercent(requested), "--use": inPercent(used) }}>
          {side >= SIGN_SIDE ? <span aria-hidden="true">{STATE_SIGN[node.state]}</span> : null}
        </a>
      </li>
    );
  }
}

/** `room` is the number of nodes that are drawn, while there are frames to come. */
interface PoolProps { pool: MapPool; scale: number; active: string; isNamed: boolean; room: number; hasUse: boolean }

class PoolBlocks extends Component<PoolProps> {
  override shouldComponentUpdate(next: PoolProps): boolean {
    const { pool, scale, active } = this.props;
    const has = (name: string): boolean => pool.nodes.some((node) => node.name === name);
    return next.pool !== pool || next.scale !== scale || next.isNamed !== this.props.isNamed || next.room !== this.props.room || next.hasUse !== this.props.hasUse || (next.active !== active && (has(active) || has(next.active)));
  }

  render({ pool, scale, active, isNamed, room, hasUse }: PoolProps): JSX.Element {
    const name = pool.name === null ? "nodes of no pool" : `pool ${pool.name}`;
    return (
      <div class="map-pool">
        {pool.name === null || !isNamed ? null : <p><a href={link("pools", pool.name)}>{pool.name}</a></p>}
        {runsOf(pool.nodes.slice(0, room)).map((nodes) => {
          const template = nodes[0]?.template;
          return (
            <div key={template ?? ""}>
              {template === undefined ? null : <p class="map-template">{template}</p>}
              <ul class="blocks" aria-label={`Nodes, ${name}${template === undefined ? "" : `, template ${template}`}`}>
                {nodes.map((node) => <MapBlock key={node.name} node={node} scale={scale} isActive={node.name === active} hasUse={hasUse} />)}
              </ul>
            </div>
          );
        })}
      </div>
    );
  }
}

function statesOf(nodes: NodeView[]): Partial<Record<NodeState, number>> {
  const states: Partial<Record<NodeState, number>> = {};
  for (const node of nodes) states[node.state] = (states[node.state] ?? 0) + 1;
  return states;
}

const titleOf = (group: Group): string =>
  !group.hasPool ? "Nodes of no pool" : group.tenants.length === 0 ? "No tenant" : group.tenants.join(", ");

interface GroupProps { group: Group; isOpen: boolean; scale: number; active: string; room: number; hasUse: boolean; onToggle: (group: Group, isOpen: boolean) => void }

/** A group, looked at again only if one of its pools differs. */
class GroupView extends Component<GroupProps> {
  override shouldComponentUpdate(next: GroupProps): boolean {
    const { group, isOpen, scale, active } = this.props;
    const has = (name: string): boolean => group.pools.some((pool) => pool.nodes.some((node) => node.name === name));
    return next.isOpen !== isOpen || next.scale !== scale || next.room !== this.props.room || next.hasUse !== this.props.hasUse || next.group.pools.length !== group.pools.length
      || next.group.pools.some((pool, at) => pool !== group.pools[at])
      || (next.active !== active && (has(active) || has(next.active)));
  }

  render({ group, isOpen, scale, active, room, hasUse, onToggle }: GroupProps): JSX.Element {
    let left = room;
    const nodes = group.pools.flatMap((pool) => pool.nodes);
    const title = titleOf(group);
    const { ready = 0, ...others } = statesOf(nodes);
    const single = group.pools.length === 1 ? group.pools[0]?.name ?? undefined : undefined;
    const area = nodes.reduce((sum, node) => sum + (sideOf(node, scale) + 3) ** 2, 0);
    return (
      <section class="map-group" aria-label={title} style={{ flexBasis: Math.round(Math.max(LEAST_WIDTH, 1.8 * Math.sqrt(area))) }}>
        <h3><button type="button" aria-expanded={isOpen} onClick={() => onToggle(group, isOpen)}><span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> {title}</button></h3>
        <p class="map-sum">{single === undefined ? null : <><a href={link("pools", single)}>{single}</a>, </>}{counted(nodes.length, "node")}, {perHour(costOf(nodes))}/h{ready < nodes.length ? <> <States states={others} /></> : null}</p>
        {isOpen ? <div class="map-pools">{group.pools.map((pool) => {
          const ofPool = Math.min(left, pool.nodes.length);
          left -= ofPool;
          return <PoolBlocks key={pool.name ?? ""} pool={pool} scale={scale} active={active} isNamed={single === undefined} room={ofPool} hasUse={hasUse} />;
        })}</div> : null}
      </section>
    );
  }
}

/** A number that grows by frames up to `total`, so that no frame draws too much. */
function useGrowing(total: number): number {
  const [shown, setShown] = useState(IN_FRAME);
  useEffect(() => {
    if (shown >= total) return;
    const frame = requestAnimationFrame(() => setShown(shown + IN_FRAME));
    return () => cancelAnimationFrame(frame);
  }, [shown, total]);
  return shown;
}

/** The width of an element in pixels. */
export function useWidth<E extends HTMLElement>(): [{ current: E | null }, number] {
  const element = useRef<E>(null);
  const [width, setWidth] = useState(0);
  // Before the first frame, so that nothing is drawn twice.
  useLayoutEffect(() => {
    const one = element.current;
    if (!one) return;
    setWidth(one.clientWidth);
    const observer = new ResizeObserver(() => setWidth(one.clientWidth));
    observer.observe(one);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

function MapBody({ data }: { data: MapView }): JSX.Element {
  const groups = useMemo(() => groupsOf(data.pools), [data.pools]);
  const nodes = useMemo(() => groups.flatMap((group) => group.pools.flatMap((pool) => pool.nodes)), [groups]);
  const [folds, setFolds] = useState<Record<string, boolean>>({});
  const [chosen, setChosen] = useState("");
  const [box, width] = useWidth<HTMLDivElement>();
  const isOpen = (group: Group): boolean => folds[group.key]
    ?? !(nodes.length > FOLD_ABOVE && group.pools.every((pool) => pool.nodes.every((node) => node.state === "ready")));
  const cores = nodes.reduce((sum, node) => sum + node.cpu / 1000, 0);
  // Rounded, so that a node more or less moves no block.
  const scale = Math.max(2, Math.floor(2 * Math.sqrt((0.5 * Math.max(width, 320) * HEIGHT) / Math.max(cores, 1))) / 2);
  const drawn = useGrowing(width === 0 ? 0 : nodes.length);
  const visible = groups.filter(isOpen).flatMap((group) => group.pools.flatMap((pool) => pool.nodes));
  const active = visible.some((node) => node.name === chosen) ? chosen : visible[0]?.name ?? "";
  const move = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (!(event.target instanceof HTMLElement) || event.target.dataset["node"] === undefined) return;
    const steps: Record<string, number> = { ArrowRight: 1, ArrowDown: 10, ArrowLeft: -1, ArrowUp: -10, Home: -visible.length, End: visible.length };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = visible.findIndex((node) => node.name === active);
    const next = visible[Math.max(0, Math.min(visible.length - 1, at + step))];
    if (next === undefined) return;
    setChosen(next.name);
    const target = box.current?.querySelector(`[data-node="${CSS.escape(next.name)}"]`);
    if (target instanceof HTMLElement) target.focus();
  };
  const toggle = (group: Group, wasOpen: boolean): void => setFolds((before) => ({ ...before, [group.key]: !wasOpen }));
  const allOpen = groups.every(isOpen);
  const foldAll = (): void => setFolds(Object.fromEntries(groups.map((group) => [group.key, !allOpen])));
  const hasUse = nodes.some((node) => node.useCpu !== undefined);
  let before = 0;
  return (
    <>
      <BlockLegend hasUse={hasUse} />
      {groups.length > 1 ? <p><button type="button" onClick={foldAll}>{allOpen ? "Fold all" : "Unfold all"}</button></p> : null}
      <div class="map" ref={box} onKeyDown={move}>
        {groups.map((group) => {
          if (width === 0 || before > drawn) return null;
          const size = group.pools.reduce((sum, pool) => sum + pool.nodes.length, 0);
          const room = Math.min(size, drawn - before);
          before += size;
          return <GroupView key={group.key} group={group} isOpen={isOpen(group)} scale={scale} active={active} room={room} hasUse={hasUse} onToggle={toggle} />;
        })}
      </div>
    </>
  );
}

/** Every node that the reader sees, as it is now. */
export function MapSection(): JSX.Element {
  const concerns = (change: Change): boolean => change.nodes.length > 0 || change.gone.length > 0 || change.pools.length > 0 || change.tenants.length > 0;
  const live = useLive<MapView>("map", concerns, patchMap);
  return (
    <section aria-labelledby="map">
      <h2 id="map">Map</h2>
      {live.error ? <p role="alert" class="error">{live.error.message}</p> : null}
      {live.data === undefined ? (live.error ? null : <p>reading</p>)
        : live.data.pools.length === 0 ? <p class="empty">There is no node.</p> : <MapBody data={live.data} />}
    </section>
  );
}
