/** What the address of a model's page holds. */
export interface ModelSearch {
  version?: number;
}

/** Reads the address; a version that is no positive integer is left out. */
export function parseModelSearch(raw: Record<string, unknown>): ModelSearch {
  const version = Number(raw.version);
  return Number.isInteger(version) && version > 0 ? { version } : {};
}
