import type { ModelSummary } from "./types";

const KINDS_WITH_EMBEDDINGS = new Set(["encoder", "embedding"]);

/** The models that have nearest neighbours; others predict rows, or answer questions about triples. */
export function withEmbeddings(models: ModelSummary[]): ModelSummary[] {
  return models.filter(({ versions }) =>
    versions.some(({ kind }) => KINDS_WITH_EMBEDDINGS.has(kind)),
  );
}

/** The model to search when none was chosen: the first that is served, else the first. */
export function chooseModel(models: ModelSummary[]): string {
  const served = models.find(({ versions }) => versions.some((version) => version.served));
  return (served ?? models[0])?.name ?? "";
}
