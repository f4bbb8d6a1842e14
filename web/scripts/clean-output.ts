import { existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Plugin, ResolvedConfig } from "vite";

const filesIn = (folder: string): string[] =>
  existsSync(folder)
    ? readdirSync(folder, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    : [];

/**
 * Removes what former builds left in the output folder, except the files of `keep`. A build that
 * fails leaves the former page.
 */
export function cleanOutput(keep: string[]): Plugin {
  let config: ResolvedConfig;
  return {
    name: "clean-output",
    apply: "build",
    configResolved(resolved) {
      config = resolved;
    },
    writeBundle(_, bundle) {
      const folder = config.build.outDir;
      const current = new Set([...keep, ...filesIn(config.publicDir), ...Object.keys(bundle)]);
      for (const file of filesIn(folder)) {
        if (!current.has(file)) rmSync(join(folder, file));
      }
    },
  };
}
