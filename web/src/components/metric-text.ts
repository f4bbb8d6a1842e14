import { useTranslation } from "react-i18next";
import { useFormat } from "@/i18n/format";
import type { Breakdown, CountName } from "./metric-names";

/** Puts what the names of an evaluation's figures mean into words. */
export function useMetricText() {
  const { t } = useTranslation();
  const format = useFormat();
  const count = (name: CountName, value: number) =>
    t(`metric.count.${name}`, { count: value, number: format.integer(value) });
  return {
    /** How much was evaluated: `3,318 queries, 6,082 links to find`. */
    counts: (names: CountName[], values: Record<string, number | null>) =>
      names
        .flatMap((name) => (values[name] == null ? [] : [count(name, values[name])]))
        .join(t("metric.separator")),
    /** How many there are to find in a part. */
    partCount: (name: string, value: number) => {
      const [noun] = name.split("_");
      return count(noun as CountName, value);
    },
    /** What a breakdown shows: `recall@20 by popularity of the target`. */
    breakdown: ({ metric, dimension }: Breakdown) => {
      if (dimension === null) return t("metric.parts", { metric });
      const words =
        dimension === "in_degree"
          ? t("metric.dimension.in_degree")
          : dimension.replaceAll("_", " ");
      return t("metric.by", { metric, dimension: words });
    },
    /** What the labels of a breakdown's parts are. */
    part: ({ dimension }: Breakdown) =>
      dimension === "in_degree"
        ? t("metric.part.in_degree")
        : (dimension?.replaceAll("_", " ") ?? t("metric.part.other")),
  };
}
