import { defineConfig } from "vitest/config";

/** Tests that need more than the demo's workspace, by the variable that gives it. */
const specialTests = {
  GRAPHBOX_LIVE_RUN: "e2e/live.test.ts",
  GRAPHBOX_BUNDLE_ANSWERS: "e2e/bundle.test.ts",
  GRAPHBOX_UNSEEN_MODEL: "e2e/encode.test.ts",
};
const special = Object.entries(specialTests).find(([variable]) => process.env[variable])?.[1];

/** Tests in a real browser against a running server; see e2e/environment.ts for what they need. */
export default defineConfig({
  root: new URL("..", import.meta.url).pathname,
  test: {
    include: special ? [special] : ["e2e/*.test.ts"],
    exclude: special ? [] : Object.values(specialTests),
    // One browser at a time: the machine that runs them may have two cores.
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
