import type { ModelSummary } from "./types";

/** The model to search when none was chosen: the first that is served, else the first. */
export function chooseModel(models: ModelSummary[]): string {
  const served = models.find(({ versions }) => versions.some((version) => version.served));
  return (served ?? models[0])?.name ?? "";
}
