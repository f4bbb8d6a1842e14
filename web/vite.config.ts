import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { checkStyles } from "./scripts/check-styles";
import { cleanOutput } from "./scripts/clean-output";
import { precompress } from "./scripts/precompress";

/** The built page lies inside the Python package, so that one process and one wheel serve it. */
const output = fileURLToPath(new URL("../server/static", import.meta.url));
const backend = "http://127.0.0.1:8710";

export default defineConfig({
  // Relative addresses: the page works below any path prefix of a proxy, without an option.
  base: "./",
  plugins: [react(), checkStyles(), cleanOutput(output, ["README.md"]), precompress(output)],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
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
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["./src/testing/setup.ts"],
    restoreMocks: true,
    testTimeout: 20_000,
  },
});
