/** What the address of a model's page holds. */
export interface ModelSearch {
  version?: number;
  tab?: ModelTab;
  /** Id of a search for compressed versions. */
  search?: string;
}

export const MODEL_TABS = ["version", "compression"] as const;
export type ModelTab = (typeof MODEL_TABS)[number];

/** Reads the address; a version that is no positive integer is left out. */
export function parseModelSearch(raw: Record<string, unknown>): ModelSearch {
  const version = Number(raw.version);
  const tab = MODEL_TABS.find((name) => name === raw.tab);
  return {
    ...(Number.isInteger(version) && version > 0 && { version }),
    ...(tab !== undefined && { tab }),
    ...(typeof raw.search === "string" && raw.search !== "" && { search: raw.search }),
  };
}
