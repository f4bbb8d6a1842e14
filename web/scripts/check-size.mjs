// Builds the page aside and holds it to its size budget, in gzipped bytes: what the first view loads,
// and what each route adds.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "vite";

const ENTRY_BUDGET_KB = 200;
const ROUTE_BUDGET_KB = 100;
const root = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "graphbox-web-"));
process.on("exit", () => rmSync(folder, { recursive: true }));

await build({ root, build: { outDir: folder }, logLevel: "error" });
const manifest = JSON.parse(readFileSync(join(folder, "assets-manifest.json"), "utf8"));
const gzippedBytes = (file) => gzipSync(readFileSync(join(folder, file)), { level: 9 }).length;

/** The chunk itself and all it imports statically. */
function closure(key, seen = new Set()) {
  if (seen.has(key)) return seen;
  seen.add(key);
  for (const inner of manifest[key].imports ?? []) closure(inner, seen);
  return seen;
}

const files = (keys) =>
  new Set([...keys].flatMap((key) => [manifest[key].file, ...(manifest[key].css ?? [])]));
const kilobytes = (names) => [...names].reduce((sum, name) => sum + gzippedBytes(name), 0) / 1000;

const entryKey = Object.keys(manifest).find((key) => manifest[key].isEntry);
const entryFiles = files(closure(entryKey));
let failed = false;
function report(name, names, budget) {
  const size = kilobytes(names);
  const over = size > budget;
  failed ||= over;
  console.log(
    `size: ${name.padEnd(40)} ${size.toFixed(1).padStart(7)} kB gz of ${budget}${over ? "  TOO LARGE" : ""}`,
  );
}

report("entry", entryFiles, ENTRY_BUDGET_KB);
for (const key of Object.keys(manifest).filter((key) => manifest[key].isDynamicEntry)) {
  const own = [...files(closure(key))].filter((file) => !entryFiles.has(file));
  report(key, own, ROUTE_BUDGET_KB);
}
process.exit(failed ? 1 : 0);
