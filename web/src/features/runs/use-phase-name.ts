import { useTranslation } from "react-i18next";
import type { MetricSeries } from "@/api/types";

const KNOWN = ["pretrain"] as const;

/** Names a phase of a model's training: the model alone for the training itself. */
export function usePhaseName(): (series: Pick<MetricSeries, "model" | "phase">) => string {
  const { t } = useTranslation("runs");
  return ({ model, phase }) => {
    if (phase === null) return model;
    const known = KNOWN.find((name) => name === phase);
    return t("training.phase", { model, phase: known ? t(`phase.${known}`) : phase });
  };
}
