import { defineConfig } from "vitest/config";

const live = "e2e/live.test.ts";

/** Tests in a real browser against a running server; see e2e/environment.ts for what they need. */
export default defineConfig({
  root: new URL("..", import.meta.url).pathname,
  test: {
    include: process.env.GRAPHBOX_LIVE_RUN ? [live] : ["e2e/*.test.ts"],
    exclude: process.env.GRAPHBOX_LIVE_RUN ? [] : [live],
    // One browser at a time: the machine that runs them may have two cores.
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
