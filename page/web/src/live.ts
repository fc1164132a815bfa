// Data of a view: read when the view opens, and again after changes that concern it.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type Change, onChange, request } from "./api";

/** The least time between two reads. */
const PAUSE_MILLIS = 600;

export interface Live<T> { data: T | undefined; error: ApiError | undefined }

/**
 * Reads `path`, and again after each change for which `concerns` is true. `patch` may take a change in without a read: it returns
 * the new data, or nothing if a read is needed.
 */
export function useLive<T>(
  path: string,
  concerns: (change: Change, data: T) => boolean,
  patch?: (change: Change, data: T) => T | undefined,
): Live<T> {
  const [state, setState] = useState<Live<T> & { path: string }>({ data: undefined, error: undefined, path });
  const latest = useRef<T>();
  const rules = useRef({ concerns, patch });
  rules.current = { concerns, patch };
  useEffect(() => {
    const abort = new AbortController();
    let last = 0;
    let timer: number | undefined;
    let again = false;
    let reading = false;
    latest.current = undefined;
    const read = async (): Promise<void> => {
      timer = undefined;
      if (reading) { again = true; return; }
      reading = true;
      last = Date.now();
      try {
        const data = await request<T>(path, { signal: abort.signal });
        latest.current = data;
        setState({ data, error: undefined, path });
      } catch (error) {
        if (abort.signal.aborted) return;
        const failed = error instanceof ApiError ? error : new ApiError(0, String(error));
        setState({ data: latest.current, error: failed, path });
        if (failed.status === 503 || failed.status === 429 || failed.status === 0) schedule(2_000);
      } finally {
        reading = false;
        if (again && !abort.signal.aborted) { again = false; schedule(PAUSE_MILLIS); }
      }
    };
    const schedule = (pause: number): void => {
      if (timer !== undefined) return;
      timer = window.setTimeout(() => void read(), Math.max(0, last + pause - Date.now()));
    };
    const stop = onChange((change) => {
      const data = latest.current;
      if (data === undefined || change.reset || rules.current.concerns(change, data)) {
        const patched = data !== undefined && !change.reset ? rules.current.patch?.(change, data) : undefined;
        if (patched === undefined) { schedule(PAUSE_MILLIS); return; }
        latest.current = patched;
        setState({ data: patched, error: undefined, path });
      }
    });
    void read();
    return () => { abort.abort(); stop(); window.clearTimeout(timer); };
  }, [path]);
  return state.path === path ? state : { data: undefined, error: undefined };
}
