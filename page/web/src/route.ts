// The address: `#/pools/a`, so that the server has one page and no name reaches its log.

import { useEffect, useState } from "preact/hooks";

export function useRoute(): string[] {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listen = (): void => setHash(location.hash);
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);
  return hash.replace(/^#\/?/, "").split("/").filter((part) => part !== "").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
}

export const link = (...parts: string[]): string => `#/${parts.map(encodeURIComponent).join("/")}`;
export const pathOf = (...parts: string[]): string => parts.map(encodeURIComponent).join("/");
