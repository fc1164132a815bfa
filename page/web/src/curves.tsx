// The curves of a day, a week or a month. They are plain SVG: 130 points and eight areas need no library.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, type Curves, type Known, request } from "./api";
import { counted, dollars, moment } from "./format";
import { useWidth } from "./map";
import { type Column, Table } from "./parts";

const HOUR = 3_600_000;
const SPANS: readonly [string, number][] = [["day", 24 * HOUR], ["week", 7 * 24 * HOUR], ["month", 31 * 24 * HOUR]];
/** Areas of a chart; what is beyond is one more. */
const AREAS = 7;
/** The shortest time that can be zoomed to. */
const LEAST_SPAN = 60_000;
/** Curves are read again after this time at the earliest. */
const REFRESH = 30_000;
const [LEFT, RIGHT, TOP, BOTTOM] = [56, 8, 8, 22];

/** The curves of the last `span`, or of a fixed time, read again while they end at the present. */
function useCurves(span: number, zoom: [number, number] | undefined): { data: Curves | undefined; error: string } {
  const [state, setState] = useState<{ data: Curves | undefined; error: string }>({ data: undefined, error: "" });
  useEffect(() => {
    const abort = new AbortController();
    let timer: number | undefined;
    const read = (): void => {
      const [from, to] = zoom ?? [Date.now() - span, undefined];
      request<Curves>(`curves?from=${from}${to === undefined ? "" : `&to=${to}`}`, { signal: abort.signal }).then(
        (data) => {
          setState({ data, error: "" });
          if (zoom === undefined) timer = window.setTimeout(read, Math.max(REFRESH, data.step / 2));
        },
        (error: unknown) => {
          if (abort.signal.aborted) return;
          setState((before) => ({ data: before.data, error: error instanceof ApiError ? error.message : String(error) }));
          timer = window.setTimeout(read, REFRESH);
        },
      );
    };
    read();
    return () => { abort.abort(); window.clearTimeout(timer); };
  }, [span, zoom?.[0], zoom?.[1]]);
  return state;
}

interface Area { name: string; values: number[] }

/** Sums by tenant or pool: the largest areas, and the rest as one. */
function areasOf(data: Curves, by: "tenant" | "pool"): Area[] {
  const sums = new Map<string, number[]>();
  for (const series of data.series) {
    const name = (by === "tenant" ? series.tenant : series.pool) || (by === "tenant" ? "shared by tenants" : "no pool");
    const values = sums.get(name) ?? data.at.map(() => 0);
    series.rates.forEach((rate, at) => { values[at] = (values[at] ?? 0) + rate; });
    sums.set(name, values);
  }
  const sum = (values: number[]): number => values.reduce((all, value) => all + value, 0);
  const sorted = [...sums].map(([name, values]) => ({ name, values })).sort((a, b) => sum(b.values) - sum(a.values));
  if (sorted.length <= AREAS + 1) return sorted;
  const rest = sorted.slice(AREAS);
  return [...sorted.slice(0, AREAS), { name: `${rest.length} others`, values: data.at.map((_, at) => rest.reduce((all, one) => all + (one.values[at] ?? 0), 0)) }];
}

/** A round number at or above `value` that divides into round parts. */
function ceiling(value: number): number {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 4, 5, 10].find((factor) => factor * unit >= value) ?? 10) * unit;
}

/** A time on the axis: with the day if the axis has several. */
function tick(at: number, span: number): string {
  const text = new Date(at).toISOString();
  return span > 2 * 24 * HOUR ? text.slice(5, 10) : span > 10 * 60_000 ? text.slice(11, 16) : text.slice(11, 19);
}

interface ChartProps {
  title: string; summary: string; data: Curves; height: number; most: number; format: (value: number) => string;
  cursor: number | undefined; onCursor: (at: number | undefined) => void; onZoom: (from: number, to: number) => void;
  draw: (x: (at: number) => number, y: (value: number) => number) => JSX.Element;
}

/** Axes, the cursor, and a drag that zooms, around what `draw` draws. */
function Chart({ title, summary, data, height, most, format, cursor, onCursor, onZoom, draw }: ChartProps): JSX.Element {
  const [box, measured] = useWidth<HTMLDivElement>();
  const [drag, setDrag] = useState<[number, number]>();
  const begun = useRef<number>();
  const width = Math.max(260, measured);
  const [first, end] = [data.at[0] ?? data.from, Math.max(data.to, (data.at[data.at.length - 1] ?? data.from) + data.step)];
  const top = ceiling(most);
  const x = (at: number): number => LEFT + ((at - first) / (end - first)) * (width - LEFT - RIGHT);
  const y = (value: number): number => height - BOTTOM - (value / top) * (height - TOP - BOTTOM);
  const timeAt = (event: PointerEvent): number => {
    const left = box.current?.getBoundingClientRect().left ?? 0;
    const part = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
    return first + Math.max(0, Math.min(1, part)) * (end - first);
  };
  const pointOf = (time: number): number => Math.max(0, Math.min(data.at.length - 1, Math.floor((time - first) / data.step)));
  const ticks = Math.max(2, Math.min(8, Math.floor(width / 110)));
  const times = Array.from({ length: ticks }, (_, at) => first + ((at + 0.5) / ticks) * (end - first));
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div ref={box}
        onPointerDown={(event) => { if (event.button === 0) begun.current = timeAt(event); }}
        onPointerMove={(event) => {
          const time = timeAt(event);
          onCursor(pointOf(time));
          if (begun.current !== undefined) setDrag([Math.min(begun.current, time), Math.max(begun.current, time)]);
        }}
        onPointerUp={() => {
          begun.current = undefined;
          setDrag(undefined);
          if (drag && x(drag[1]) - x(drag[0]) > 8) onZoom(drag[0], drag[1]);
        }}
        onPointerLeave={() => { begun.current = undefined; setDrag(undefined); }}>
        <svg role="img" aria-label={`${title}. ${summary}`} viewBox={`0 0 ${width} ${height}`} width={width} height={height}>
          {[0, 0.5, 1].map((part) => (
            <g class="axis">
              <line x1={LEFT} x2={width - RIGHT} y1={y(part * top)} y2={y(part * top)} />
              <text x={LEFT - 6} y={y(part * top) + 4} text-anchor="end">{format(part * top)}</text>
            </g>
          ))}
          {times.map((at) => <text class="tick" x={x(at)} y={height - 6} text-anchor="middle">{tick(at, end - first)}</text>)}
          {draw(x, y)}
          {cursor !== undefined && data.at[cursor] !== undefined ? <line class="cursor" x1={x(data.at[cursor]! + data.step / 2)} x2={x(data.at[cursor]! + data.step / 2)} y1={TOP} y2={height - BOTTOM} /> : null}
          {drag ? <rect class="drag" x={x(drag[0])} y={TOP} width={x(drag[1]) - x(drag[0])} height={height - TOP - BOTTOM} /> : null}
        </svg>
      </div>
    </figure>
  );
}

/** The outline of steps between two rows of values: each holds until the next point. */
function steps(data: Curves, low: number[], high: number[], x: (at: number) => number, y: (value: number) => number): string {
  const end = (at: number): number => Math.min(data.to, (data.at[at] ?? 0) + data.step);
  const up = data.at.map((time, at) => `${x(time).toFixed(1)},${y(high[at] ?? 0).toFixed(1)} ${x(end(at)).toFixed(1)},${y(high[at] ?? 0).toFixed(1)}`);
  const down = data.at.map((time, at) => `${x(end(at)).toFixed(1)},${y(low[at] ?? 0).toFixed(1)} ${x(time).toFixed(1)},${y(low[at] ?? 0).toFixed(1)}`).reverse();
  return `M${[...up, ...down].join(" L")}Z`;
}

/** The same of values of which some aren't known: each run of known ones has an outline of its own, with gaps between. */
function knownSteps(data: Curves, values: Known[], x: (at: number) => number, y: (value: number) => number): string {
  const outlines: string[] = [];
  for (let from = 0; from < values.length; from += 1) {
    if (values[from] === null) continue;
    let to = from;
    while (to < values.length && values[to] !== null) to += 1;
    const part = { ...data, at: data.at.slice(from, to) };
    const known = values.slice(from, to).map((value) => value ?? 0);
    outlines.push(steps(part, known.map(() => 0), known, x, y));
    from = to;
  }
  return outlines.join(" ");
}

const largest = (values: Known[]): number => values.reduce((most: number, value) => Math.max(most, value ?? 0), 0);
const sumOf = (values: Known[]): number => values.reduce((sum: number, value) => sum + (value ?? 0), 0);
/** A value in words. */
const told = (value: Known | undefined): string => value === null || value === undefined ? "unknown" : String(value);
/** Since when there are values, if not from the beginning. */
const since = (data: Curves, values: Known[]): string => {
  const first = values.findIndex((value) => value !== null);
  return first === -1 ? " Unknown." : first === 0 ? "" : ` Unknown before ${moment(data.at[first] ?? data.from)}.`;
};
const whole = (value: number): string => String(Math.round(value * 10) / 10);

interface ChartsProps {
  data: Curves; areas: Area[]; cursor: number | undefined; onCursor: (at: number | undefined) => void; onZoom: (from: number, to: number) => void;
}

function Charts({ data, areas, cursor, onCursor, onZoom }: ChartsProps): JSX.Element {
  const totals = data.at.map((_, at) => areas.reduce((sum, area) => sum + (area.values[at] ?? 0), 0));
  const { waiting, runs, launched, removed } = data;
  const moved = largest([...launched, ...removed]);
  const shared = { data, cursor, onCursor, onZoom };
  const lows: number[][] = [];
  for (const at of areas.keys()) lows.push(at === 0 ? data.at.map(() => 0) : lows[at - 1]!.map((low, point) => low + (areas[at - 1]!.values[point] ?? 0)));
  return (
    <>
      <Chart {...shared} title="$ per hour" height={240} most={largest(totals)} format={(value) => dollars(value, 2)}
        summary={`Between ${dollars(totals.reduce((least, value) => Math.min(least, value), Infinity) || 0, 2)} and ${dollars(largest(totals), 2)}, at last ${dollars(totals[totals.length - 1] ?? 0, 2)}.`}
        draw={(x, y) => <>{areas.map((area, at) => <path class={`area area-${at}`} d={steps(data, lows[at]!, lows[at]!.map((low, point) => low + (area.values[point] ?? 0)), x, y)} />)}</>} />
      {waiting ? (
        <Chart {...shared} title="Pods that waited for a node" height={120} most={largest(waiting)} format={whole}
          summary={`At most ${largest(waiting)}, at last ${told(waiting[waiting.length - 1])}.${since(data, waiting)}`}
          draw={(x, y) => <path class="area waiting" d={knownSteps(data, waiting, x, y)} />} />
      ) : null}
      <Chart {...shared} title="Nodes launched and removed" height={120} most={moved} format={whole}
        summary={`${largest(launched) === 0 ? "None" : sumOf(launched)} launched, ${sumOf(removed)} removed.${since(data, launched)}`}
        draw={(x, y) => <>{data.at.map((time, at) => {
          const [from, half] = [x(time), Math.max(1, (x(time + data.step) - x(time)) / 2 - 1)];
          return <>
            {launched[at] ? <rect class="launched" x={from} width={half} y={y(launched[at]!)} height={y(0) - y(launched[at]!)} /> : null}
            {removed[at] ? <rect class="removed" x={from + half} width={half} y={y(removed[at]!)} height={y(0) - y(removed[at]!)} /> : null}
          </>;
        })}</>} />
      {runs && runs.length > 0 ? (
        <Chart {...shared} title="What scheduling runs launched, $ per hour, and the lower bound of each" height={120} most={largest(runs.map((run) => run.cost))} format={(value) => dollars(value, 2)}
          summary={`${counted(runs.length, "run")}.`}
          draw={(x, y) => <>{runs.map((run) => (
            <g class="run">
              {run.bound > 0 ? <line x1={x(run.at)} x2={x(run.at)} y1={y(run.bound)} y2={y(run.cost)} /> : null}
              <circle cx={x(run.at)} cy={y(run.cost)} r={3} />
              {run.bound > 0 ? <line class="bound" x1={x(run.at) - 4} x2={x(run.at) + 4} y1={y(run.bound)} y2={y(run.bound)} /> : null}
            </g>
          ))}</>} />
      ) : null}
    </>
  );
}

const waitedAt = (value: Known | undefined): string =>
  value === null || value === undefined ? "unknown how many pods waited" : `${counted(value, "pod")} waited`;

/** The charts at a point, as text. */
function Readout({ data, areas, at }: { data: Curves; areas: Area[]; at: number }): JSX.Element {
  const total = areas.reduce((sum, area) => sum + (area.values[at] ?? 0), 0);
  return (
    <p class="readout">
      <b>{moment(data.at[at] ?? data.from)}</b> {dollars(total)}/h{data.waiting ? `, ${waitedAt(data.waiting[at])}` : ""}, {told(data.launched[at])} launched, {told(data.removed[at])} removed
    </p>
  );
}

function AreaLegend({ data, areas, at }: { data: Curves; areas: Area[]; at: number }): JSX.Element {
  return (
    <ul class="inline area-legend" aria-label="Areas, from below">
      {areas.map((area, index) => <li><span class={`swatch area-${index}`} aria-hidden="true" /> {area.name} {dollars(area.values[at] ?? 0)}/h</li>)}
      {data.at.length > 0 ? <li><span class="swatch launched" aria-hidden="true" /> launched</li> : null}
      <li><span class="swatch removed" aria-hidden="true" /> removed</li>
    </ul>
  );
}

/** The points of the curves as rows. */
function CurveTable({ data, areas }: { data: Curves; areas: Area[] }): JSX.Element {
  const columns = useMemo((): Column<number>[] => {
    const money = (title: string, value: (at: number) => number): Column<number> => ({ title, cell: (at) => dollars(value(at)), key: value, isNumber: true });
    const number = (title: string, values: Known[]): Column<number> => ({ title, cell: (at) => told(values[at]), key: (at) => values[at] ?? -1, isNumber: true });
    return [
      { title: "From", cell: (at) => moment(data.at[at] ?? 0), key: (at) => data.at[at] ?? 0 },
      money("$ per hour", (at) => areas.reduce((sum, area) => sum + (area.values[at] ?? 0), 0)),
      ...areas.map((area) => money(area.name, (at) => area.values[at] ?? 0)),
      ...(data.waiting ? [number("Pods waited", data.waiting)] : []),
      number("Launched", data.launched),
      number("Removed", data.removed),
    ];
  }, [data, areas]);
  const rows = useMemo(() => data.at.map((_, at) => at).reverse(), [data]);
  return <Table caption="Curves as a table" rows={rows} columns={columns} id={(at) => `${data.at[at]}`} empty="The record has no costs of that time." />;
}

/** Curves with what chooses their time and their areas. */
export function CurvesBody(): JSX.Element {
  const [span, setSpan] = useState(SPANS[0]![1]);
  const [by, setBy] = useState<"tenant" | "pool">("tenant");
  const [zoom, setZoom] = useState<[number, number]>();
  const [cursor, setCursor] = useState<number>();
  const { data, error } = useCurves(span, zoom);
  const areas = useMemo(() => data ? areasOf(data, by) : [], [data, by]);
  const last = Math.max(0, (data?.at.length ?? 1) - 1);
  const at = Math.min(cursor ?? last, last);
  const zoomTo = (from: number, to: number): void => {
    if (to - from < LEAST_SPAN) return;
    setCursor(undefined);
    setZoom([Math.round(from), Math.round(to)]);
  };
  const zoomIn = (): void => {
    if (!data) return;
    const [middle, quarter] = [data.at[at] ?? data.from, (data.to - data.from) / 4];
    zoomTo(Math.max(data.from, middle - quarter), Math.min(data.to, middle + quarter));
  };
  const choice = (name: string, isChosen: boolean, choose: () => void): JSX.Element =>
    <button type="button" aria-pressed={isChosen} onClick={choose}>{name}</button>;
  return (
    <>
      <p class="controls">
        <span role="group" aria-label="Time">{SPANS.map(([name, millis]) => choice(name, span === millis && zoom === undefined, () => { setSpan(millis); setZoom(undefined); setCursor(undefined); }))}</span>{" "}
        <span role="group" aria-label="Areas">{choice("by tenant", by === "tenant", () => setBy("tenant"))}{choice("by pool", by === "pool", () => setBy("pool"))}</span>{" "}
        <span role="group" aria-label="Zoom"><button type="button" onClick={zoomIn}>Zoom in</button>{zoom ? <button type="button" onClick={() => { setZoom(undefined); setCursor(undefined); }}>Zoom out</button> : null}</span>
      </p>
      {error ? <p role="alert" class="error">{error}</p> : null}
      {data === undefined ? (error ? null : <p>reading</p>) : data.at.length === 0 ? <p class="empty">The record has no costs of that time.</p> : (
        <>
          <p class="controls"><label>Point <input type="range" min={0} max={last} value={at} aria-valuetext={moment(data.at[at] ?? data.from)} onInput={(event) => setCursor(Number(event.currentTarget.value))} /></label></p>
          <Readout data={data} areas={areas} at={at} />
          <AreaLegend data={data} areas={areas} at={at} />
          <Charts data={data} areas={areas} cursor={cursor} onCursor={setCursor} onZoom={zoomTo} />
          <p class="empty">Drag over a chart to zoom. Costs are those of the ledger, without capacity that commitments pay for.{data.begins !== null && data.begins > data.from - data.step ? ` The record begins at ${moment(data.begins)}.` : ""}{data.isComplete ? "" : " Some hours lack costs."}</p>
          <h2>As a table</h2>
          <CurveTable data={data} areas={areas} />
        </>
      )}
    </>
  );
}
