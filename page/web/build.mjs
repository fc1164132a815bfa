// Builds the page into ../dist: the same bytes for the same sources and lock file. Run by `make page-web`.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";

const dist = new URL("../dist/", import.meta.url);
await mkdir(dist, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx", "app-style": "src/style.css" },
  outdir: dist.pathname,
  entryNames: "[name]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  outExtension: { ".css": ".css" },
});
const { rename } = await import("node:fs/promises");
await rename(new URL("app-style.css", dist), new URL("app.css", dist));
await copyFile("src/index.html", new URL("index.html", dist));
await copyFile("src/icon.svg", new URL("icon.svg", dist));
