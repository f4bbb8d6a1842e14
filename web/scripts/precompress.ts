import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { Plugin, ResolvedConfig } from "vite";

const COMPRESSIBLE = /\.(js|css|html|svg|json)$/;
const MINIMUM_BYTES = 1024;

/** Writes a .gz file beside each text asset, so that the server sends it without compressing. */
export function precompress(): Plugin {
  let config: ResolvedConfig;
  return {
    name: "precompress",
    apply: "build",
    configResolved(resolved) {
      config = resolved;
    },
    closeBundle(error) {
      if (error) return;
      const folder = config.build.outDir;
      for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
        if (!COMPRESSIBLE.test(name)) continue;
        const content = readFileSync(join(folder, name));
        if (content.length < MINIMUM_BYTES) continue;
        writeFileSync(join(folder, `${name}.gz`), gzipSync(content, { level: 9 }));
      }
    },
  };
}
