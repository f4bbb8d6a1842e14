import { existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

/** Empties the output folder before a build, but keeps the named files, which git tracks. */
export function cleanOutput(folder: string, keep: string[]): Plugin {
  return {
    name: "clean-output",
    apply: "build",
    // Late, so that a build that fails leaves the former page.
    generateBundle() {
      if (!existsSync(folder)) return;
      for (const entry of readdirSync(folder)) {
        if (!keep.includes(entry)) rmSync(join(folder, entry), { recursive: true });
      }
    },
  };
}
