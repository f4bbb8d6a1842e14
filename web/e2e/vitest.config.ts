import { defineConfig } from "vitest/config";

const live = "e2e/live.test.ts";
const bundle = "e2e/bundle.test.ts";
const special = process.env.GRAPHBOX_LIVE_RUN
  ? live
  : process.env.GRAPHBOX_BUNDLE_ANSWERS
    ? bundle
    : null;

/** Tests in a real browser against a running server; see e2e/environment.ts for what they need. */
export default defineConfig({
  root: new URL("..", import.meta.url).pathname,
  test: {
    include: special ? [special] : ["e2e/*.test.ts"],
    exclude: special ? [] : [live, bundle],
    // One browser at a time: the machine that runs them may have two cores.
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
