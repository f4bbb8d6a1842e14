import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { checkStyles } from "./scripts/check-styles.ts";
import { cleanOutput } from "./scripts/clean-output.ts";
import { precompress } from "./scripts/precompress.ts";

/** The built page lies inside the Python package, so that one process and one wheel serve it. */
const inWeb = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const output = inWeb("../server/static");
const backend = "http://127.0.0.1:8710";

export default defineConfig({
  // Relative addresses: the page works below any path prefix of a proxy, without an option.
  base: "./",
  plugins: [react(), checkStyles(), cleanOutput(["README.md"]), precompress()],
  resolve: { alias: { "@": inWeb("./src") } },
  build: {
    outDir: output,
    emptyOutDir: false,
    target: ["chrome111", "firefox114", "safari16.4"],
    sourcemap: false,
    // Small files would otherwise be put into the style sheet as data: addresses.
    assetsInlineLimit: 0,
    manifest: "assets-manifest.json",
  },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/v2", "/metrics", "/healthz"].map((path) => [
        path,
        { target: backend, changeOrigin: true },
      ]),
    ),
  },
  test: {
    environment: "jsdom",
    globals: true,
    include: ["src/**/*.test.{ts,tsx}", "bundle/**/*.test.ts"],
    setupFiles: ["./src/testing/setup.ts"],
    restoreMocks: true,
    testTimeout: 20_000,
  },
});
