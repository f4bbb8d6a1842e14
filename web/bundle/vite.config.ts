import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";
import { cleanOutput } from "../scripts/clean-output.ts";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Writes the version of ONNX Runtime Web beside the page. */
function runtimeVersion(): Plugin {
  return {
    name: "runtime-version",
    generateBundle() {
      const file = here("../node_modules/onnxruntime-web/package.json");
      const { version } = JSON.parse(readFileSync(file, "utf8")) as { version: string };
      this.emitFile({
        type: "asset",
        fileName: "runtime.json",
        source: JSON.stringify({ version }),
      });
    },
  };
}

/** The page of browser bundles; the adapter `browser` copies it, so it lies in its package. */
export default defineConfig({
  root: here("."),
  base: "./",
  publicDir: false,
  plugins: [runtimeVersion(), cleanOutput([])],
  build: {
    outDir: here("../../deploy/browser_page"),
    emptyOutDir: false,
    target: ["chrome111", "firefox114", "safari16.4"],
    sourcemap: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { input: [here("./index.html"), here("./runner.html")] },
  },
});
