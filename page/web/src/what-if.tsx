// The effect of a manifest: where its pods would run, and what that adds.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApiError, type ExistingNode, type NewInstance, type WhatIf, request } from "./api";
import { counted, named, perHour, price } from "./format";
import { type Column, Reasons, Table } from "./parts";
import { link } from "./route";
import { View } from "./views";

/** New instances that are alike, as one. */
function alike(instances: NewInstance[]): { one: NewInstance; count: number; pods: number }[] {
  const groups = new Map<string, { one: NewInstance; count: number; pods: number }>();
  for (const one of instances) {
    const key = [one.pool, one.instanceType, one.zone, one.capacityType, one.price].join(" ");
    const group = groups.get(key) ?? { one, count: 0, pods: 0 };
    groups.set(key, { one, count: group.count + 1, pods: group.pods + one.pods.length });
  }
  return [...groups.values()];
}

const EXISTING_COLUMNS: Column<ExistingNode>[] = [
  { title: "Node", cell: (row) => <>{row.coming ? "coming node " : ""}<a href={link("nodes", row.node)}>{row.node}</a></>, key: (row) => row.node },
  { title: "Pods", cell: (row) => row.pods.length, key: (row) => row.pods.length, isNumber: true },
];

const EXAMPLE = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: example
spec:
  replicas: 3
  selector: {matchLabels: {app: example}}
  template:
    metadata: {labels: {app: example}}
    spec:
      containers:
      - name: app
        image: app
        resources: {requests: {cpu: 500m, memory: 1Gi}}
`;

export function WhatIfPage({ namespaces }: { namespaces: string[] }): JSX.Element {
  const [text, setText] = useState(EXAMPLE);
  const [namespace, setNamespace] = useState(namespaces[0] ?? "default");
  const [state, setState] = useState<{ answer?: WhatIf; error?: string; isReading: boolean }>({ isReading: false });
  const submit = (event: Event): void => {
    event.preventDefault();
    setState({ isReading: true });
    request<WhatIf>(`what-if?namespace=${encodeURIComponent(namespace)}`, { method: "POST", headers: { "Content-Type": "application/yaml" }, body: text }).then(
      (answer) => setState({ answer, isReading: false }),
      (error: unknown) => setState({ error: error instanceof ApiError ? error.message : String(error), isReading: false }),
    );
  };
  const { answer } = state;
  return (
    <View title="What if" live={{ data: true, error: undefined }}>
      {() => (
        <>
          <p>Where would a manifest's pods run, and what would it add? Nothing is applied.</p>
          <form onSubmit={submit} class="what-if">
            <label>Namespace of objects that name none <input list="namespaces" value={namespace} onInput={(event) => setNamespace(event.currentTarget.value)} /></label>
            <datalist id="namespaces">{namespaces.map((name) => <option value={name} />)}</datalist>
            <label>Manifest <textarea rows={16} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
            <button type="submit" disabled={state.isReading}>{state.isReading ? "Computing" : "Try it"}</button>
          </form>
          <pre class="print">{`# Namespace of objects that name none: ${namespace}\n${text}`}</pre>
          <div aria-live="polite">
            {state.error ? <pre role="alert" class="error">{state.error}</pre> : null}
            {answer ? (
              <>
                <h2>It adds {perHour({ micros: answer.adds, unknown: answer.unpriced, estimated: false })}/h</h2>
                <ul>
                  {answer.workloads.map((one) => (
                    <li><b class={one.outcome === "denied" ? "bad" : one.outcome === "unknown" ? "note" : "good"}>{one.outcome}</b> {one.kind} {one.namespace}/{one.name}{one.template ? `, ${one.template}` : ""}{one.pool ? <>: pool <a href={link("pools", one.pool)}>{one.pool}</a></> : ""}{one.message ? `: ${one.message}` : ""}
                      {[one.note, ...(one.warnings ?? []), one.shortfall?.message].filter((said) => said).map((said) => <p class="note">{said}</p>)}</li>
                  ))}
                </ul>
                {answer.instances.length > 0 ? <><h3>New instances</h3><ul>{alike(answer.instances).map(({ one, count, pods }) => <li>{count > 1 ? `${count} × ` : ""}{one.instanceType} in {one.zone}, {one.capacityType}, pool {one.pool}, {price(one.price, one.estimated)}{count > 1 ? " each" : ""}: {counted(pods, "pod")}</li>)}</ul></> : null}
                {answer.existing.length > 0 ? <><h3>Existing nodes</h3><Table caption="Existing nodes" rows={answer.existing} columns={EXISTING_COLUMNS} id={(row) => row.node} text={(row) => row.node} empty="" /></> : null}
                {answer.pending.length > 0 ? <><h3>Pods that would stay pending</h3>{answer.pending.map((one) => <><p>{counted(one.pods.length, "pod")}: {named(one.pods, 5)}</p><Reasons reasons={one.reasons} /></>)}</> : null}
                {answer.warnings.map((warning) => <p class="note">{warning}</p>)}
              </>
            ) : null}
          </div>
        </>
      )}
    </View>
  );
}
