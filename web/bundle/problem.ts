import type { TextKey } from "./texts.ts";

/** An error with a text in each language. */
export class Problem extends Error {
  constructor(
    readonly key: TextKey,
    readonly values: Record<string, string | number> = {},
  ) {
    super(`${key} ${JSON.stringify(values)}`);
  }
}
