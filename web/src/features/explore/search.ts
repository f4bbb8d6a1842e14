/** What the address of the explore page holds. */
export interface ExploreSearch {
  model?: string;
  version?: number;
  type?: string;
  id?: string;
  k?: number;
  /** False: without what a known link joins to the node. */
  linked?: false;
}

export const RESULT_COUNTS = [10, 20, 50, 100] as const;
export const DEFAULT_RESULT_COUNT = 20;

const text = (value: unknown): string | undefined =>
  typeof value === "string" && value !== ""
    ? value
    : typeof value === "number" || typeof value === "boolean"
      ? String(value)
      : undefined;

const positive = (value: unknown): number | undefined => {
  const number = Number(value);
  return Number.isInteger(number) && number > 0 ? number : undefined;
};

/** Reads the address; whatever is not understood is left out. */
export function parseExploreSearch(raw: Record<string, unknown>): ExploreSearch {
  const model = text(raw.model);
  const version = positive(raw.version);
  const type = text(raw.type);
  const id = text(raw.id);
  const k = positive(raw.k);
  const linked = raw.linked === false || raw.linked === "false" ? false : undefined;
  return {
    ...(model !== undefined && { model }),
    ...(version !== undefined && { version }),
    ...(type !== undefined && { type }),
    ...(id !== undefined && { id }),
    ...(k !== undefined && { k }),
    ...(linked !== undefined && { linked }),
  };
}
