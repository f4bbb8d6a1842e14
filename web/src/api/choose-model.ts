import type { ModelSummary, ModelVersion } from "./types";

const KINDS_WITH_EMBEDDINGS = new Set(["encoder", "embedding"]);

/** Whether a version is asked about ids and gives their embeddings. */
export function hasEmbeddings({ kind }: ModelVersion): boolean {
  return KINDS_WITH_EMBEDDINGS.has(kind);
}

/** The models that have nearest neighbours; others predict rows, or answer questions about triples. */
export function withEmbeddings(models: ModelSummary[]): ModelSummary[] {
  return models.filter(({ versions }) => versions.some(hasEmbeddings));
}

/** The model to search when none was chosen: the first that is served, else the first. */
export function chooseModel(models: ModelSummary[]): string {
  const served = models.find(({ versions }) => versions.some((version) => version.served));
  return (served ?? models[0])?.name ?? "";
}
