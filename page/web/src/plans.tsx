// Scheduling runs: all of them as a table, and one with what it decided.

import type { ComponentChildren, JSX } from "preact";
import type { Entry, PlanFigures } from "./api";
import { counted, dollars, moment } from "./format";
import { useLive } from "./live";
import { claimOf } from "./log";
import { type Column, Table } from "./parts";
import { link } from "./route";
import { PodLinks, View } from "./views";

/** The meaning of the figures of a run, beside them and below the table. */
const MEANINGS = {
  placed: "Pods that have room on nodes that are there or coming.",
  pending: "Pods that no pool can take; their own pages say why.",
  bound: "No choice of instances for these pods can be cheaper than this. It isn't known where the price of an instance isn't.",
  gap: "How far the run's cost is above the bound. Whole instances are seldom filled exactly, so a run for few pods has a large gap that no other choice could close.",
  steps: "How many choices the search compared before it stopped.",
  inputs: "A digest of everything the run read: runs with the same one saw the same cluster.",
} as const;

const gapOf = ({ cost, bound }: PlanFigures): number => bound > 0 ? (cost - bound) / bound : 0;
const gapText = (plan: PlanFigures): string => plan.bound > 0 ? `${(100 * gapOf(plan)).toFixed(1)} %` : plan.instances > 0 ? "unknown" : "-";
const boundText = (plan: PlanFigures): string => plan.bound > 0 || plan.instances === 0 ? dollars(plan.bound) : "unknown";

const figure = (title: string, of: (plan: PlanFigures) => number, text: (plan: PlanFigures) => string = (plan) => `${of(plan)}`): Column<Entry> => ({
  title, cell: (entry) => entry.plan ? text(entry.plan) : "", key: (entry) => entry.plan ? of(entry.plan) : 0, isNumber: true,
});

const PLAN_COLUMNS: Column<Entry>[] = [
  { title: "Time", cell: (entry) => <a href={link("plans", `${entry.t}`)}>{moment(entry.t)}</a>, key: (entry) => entry.t },
  figure("Instances", (plan) => plan.instances),
  figure("Pods for them", (plan) => plan.pods),
  figure("On nodes", (plan) => plan.placed),
  figure("Pending", (plan) => plan.unschedulable),
  figure("$ per hour", (plan) => plan.cost, (plan) => dollars(plan.cost)),
  figure("Lower bound", (plan) => plan.bound, boundText),
  figure("Gap", gapOf, gapText),
  figure("Steps", (plan) => plan.steps),
  { title: "Inputs", cell: (entry) => <code>{entry.plan?.inputs.slice(0, 12)}</code> },
];

export function PlansPage(): JSX.Element {
  const live = useLive<Entry[]>("plans", (change) => change.log);
  return (
    <View title="Plans" live={live}>
      {(entries) => (
        <>
          <p>Each row is a scheduling run that found something else than the one before: how many instances it requested, for which pods, and what they cost. Its time opens it.</p>
          <details>
            <summary>What the columns mean</summary>
            <dl class="facts">
              <dt>On nodes</dt><dd>{MEANINGS.placed}</dd>
              <dt>Pending</dt><dd>{MEANINGS.pending}</dd>
              <dt>Lower bound</dt><dd>{MEANINGS.bound}</dd>
              <dt>Gap</dt><dd>{MEANINGS.gap}</dd>
              <dt>Steps</dt><dd>{MEANINGS.steps}</dd>
              <dt>Inputs</dt><dd>{MEANINGS.inputs}</dd>
            </dl>
          </details>
          <Table caption="Scheduling runs" rows={entries} columns={PLAN_COLUMNS} id={(entry) => `${entry.n}`} empty="The log has no scheduling run." />
        </>
      )}
    </View>
  );
}

/** Entries by a name of each, in their order. */
function grouped(entries: Entry[], nameOf: (entry: Entry) => string): [string, Entry[]][] {
  const groups = new Map<string, Entry[]>();
  for (const entry of entries) {
    const name = nameOf(entry);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [entry]);
    else group.push(entry);
  }
  return [...groups];
}

const podsOf = (entries: Entry[]): string[] => entries.flatMap((entry) => entry.pods ?? []);

function Figures({ plan }: { plan: PlanFigures }): JSX.Element {
  const item = (name: string, value: ComponentChildren, meaning: string): JSX.Element => <><dt>{name}</dt><dd><b>{value}</b> {meaning}</dd></>;
  return (
    <dl class="facts">
      {item("On nodes", plan.placed, MEANINGS.placed)}
      {item("Pending", plan.unschedulable, MEANINGS.pending)}
      {item("Lower bound, $ per hour", boundText(plan), MEANINGS.bound)}
      {item("Gap", gapText(plan), MEANINGS.gap)}
      {item("Steps", plan.steps, MEANINGS.steps)}
      {item("Inputs", <code>{plan.inputs}</code>, MEANINGS.inputs)}
    </dl>
  );
}

/** A run, and what the entries of the same time that follow it say of its decisions. */
function Run({ plan, decisions }: { plan: PlanFigures; decisions: Entry[] }): JSX.Element {
  const claims = grouped(decisions.filter((entry) => entry.k === "create"), claimOf);
  const pending = grouped(decisions.filter((entry) => entry.k === "pending"), (entry) => `${entry.r ?? ""}: ${entry.m ?? ""}`);
  return (
    <>
      <p class="sum">{counted(plan.instances, "instance")} for {counted(plan.pods, "pod")}, {dollars(plan.cost)}/h</p>
      <Figures plan={plan} />
      <h2>Instances that it requested</h2>
      {claims.length === 0 ? <p class="empty">The log names none.</p> : (
        <ul class="run-claims">
          {claims.map(([claim, entries]) => {
            const pods = podsOf(entries);
            const [first] = entries;
            return (
              <li key={claim}>
                <a href={link("nodes", claim)}>{claim}</a>{first?.pool ? <> in pool <a href={link("pools", first.pool)}>{first.pool}</a></> : ""}{first?.m ? `, ${first.m}` : ""}
                {pods.length > 0 ? <>, for {counted(pods.length, "pod")}: <PodLinks pods={pods} /></> : ""}
              </li>
            );
          })}
        </ul>
      )}
      {pending.length > 0 ? (
        <>
          <h2>Pods that it found no place for</h2>
          <p class="empty">A pod is named when its reason differs from that of the run before.</p>
          <ul class="reasons">
            {pending.map(([key, entries]) => (
              <li key={key}><b class="note">{entries[0]?.r}</b>{entries[0]?.m ? `: ${entries[0]?.m}` : ""} <PodLinks pods={podsOf(entries)} /></li>
            ))}
          </ul>
        </>
      ) : null}
    </>
  );
}

/** The run of a time, in milliseconds since 1970: its decisions have the same one. */
export function PlanPage({ at }: { at: string }): JSX.Element {
  const time = Number(at);
  const live = useLive<{ entries: Entry[] }>(`history?from=${time}&to=${time}`, () => false);
  return (
    <View title={`Plan of ${moment(time)}`} live={live}>
      {({ entries }) => {
        const run = entries.find((entry) => entry.plan !== undefined);
        return run?.plan
          ? <Run plan={run.plan} decisions={entries.filter((entry) => entry.n > run.n).reverse()} />
          : <p class="empty">The log that you may see has no scheduling run of that time.</p>;
      }}
    </View>
  );
}
