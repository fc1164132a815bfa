// Numbers and times as text.

import type { Cost } from "./api";

const trimmed = (value: number, digits: number): string =>
  value.toFixed(digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");

/** Millionths of a dollar: `$1.25`. */
export function dollars(micros: number, digits = 4): string {
  return `${micros < 0 ? "-" : ""}$${trimmed(Math.abs(micros) / 1e6, digits)}`;
}

export function perHour(cost: Cost): string {
  const more = cost.unknown > 0 ? ` + ${cost.unknown} unknown` : "";
  return `${cost.estimated ? "~" : ""}${dollars(cost.micros)}${more}`;
}

/** What nodes cost together. A price that isn't known is counted, and never as nothing. */
export const costOf = (nodes: readonly { price: number | null; estimated?: boolean }[]): Cost => ({
  micros: nodes.reduce((sum, node) => sum + (node.price ?? 0), 0),
  unknown: nodes.filter((node) => node.price === null).length,
  estimated: nodes.some((node) => node.estimated === true),
});

export function price(micros: number | null, estimated: boolean): string {
  return micros === null ? "unknown" : `${estimated ? "~" : ""}${dollars(micros)}/h`;
}

export const bill = (micros: number): string => `$${(micros / 1e6).toFixed(2)}`;
export const cores = (millis: number): string => trimmed(millis / 1000, 2);
export const gib = (bytes: number): string => `${trimmed(bytes / 2 ** 30, 1)} GiB`;
export const percent = (part: number, whole: number): string => whole > 0 ? `${Math.round((100 * part) / whole)} %` : "-";
export const counted = (count: number, one: string): string => `${count} ${one}${count === 1 ? "" : "s"}`;

/** The first names, and how many others there are. */
export const named = (names: string[], most: number): string =>
  names.length > most ? `${names.slice(0, most).join(", ")} and ${names.length - most} more` : names.join(", ");

const pad = (value: number): string => String(value).padStart(2, "0");

/** A time of the day, UTC, as the command line writes it. */
export function clock(millis: number): string {
  const at = new Date(millis);
  return `${pad(at.getUTCHours())}:${pad(at.getUTCMinutes())}:${pad(at.getUTCSeconds())}Z`;
}

export const moment = (millis: number): string => `${new Date(millis).toISOString().slice(0, 10)} ${clock(millis)}`;

/** How long ago: `3 min`. */
export function age(millis: number | null, now: number): string {
  if (millis === null) return "";
  const seconds = Math.max(0, Math.round((now - millis) / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}
