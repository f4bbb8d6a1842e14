/** What the address of the list of runs holds: the filter and the sorting (`-size`, `name`). */
export interface RunsSearch {
  q?: string;
  sort?: string;
}

export function parseRunsSearch(raw: Record<string, unknown>): RunsSearch {
  const filter = typeof raw.q === "number" ? String(raw.q) : raw.q;
  return {
    ...(typeof filter === "string" && filter !== "" && { q: filter }),
    ...(typeof raw.sort === "string" && /^-?[a-z_]+$/.test(raw.sort) && { sort: raw.sort }),
  };
}

export const RUN_TABS = ["training", "results", "config"] as const;
export type RunTab = (typeof RUN_TABS)[number];

/** What the address of a run holds. */
export interface RunSearch {
  tab?: RunTab;
  smoothing?: number;
}

export function parseRunSearch(raw: Record<string, unknown>): RunSearch {
  const tab = RUN_TABS.find((name) => name === raw.tab);
  const smoothing = Number(raw.smoothing);
  return {
    ...(tab !== undefined && { tab }),
    ...(smoothing > 0 && smoothing < 1 && { smoothing }),
  };
}
