import { describe, expect, it } from "vitest";
import { sortMetricNames } from "./metric-names";

describe("sortMetricNames", () => {
  it("tells metrics, counts and metrics of parts apart", () => {
    const names = [
      "recall@20",
      "mrr",
      "queries",
      "positives",
      "recall@20_in_degree_over_50",
      "positives_in_degree_over_50",
      "recall@20_in_degree_5_to_50",
      "positives_in_degree_5_to_50",
      "recall@20_in_degree_0",
      "positives_in_degree_0",
    ];
    expect(sortMetricNames(names)).toEqual({
      metrics: ["recall@20", "mrr"],
      counts: ["queries", "positives"],
      breakdowns: [
        {
          metric: "recall@20",
          dimension: "in_degree",
          parts: [
            {
              metric: "recall@20_in_degree_over_50",
              count: "positives_in_degree_over_50",
              label: "> 50",
            },
            {
              metric: "recall@20_in_degree_5_to_50",
              count: "positives_in_degree_5_to_50",
              label: "5–50",
            },
            { metric: "recall@20_in_degree_0", count: "positives_in_degree_0", label: "0" },
          ],
        },
      ],
    });
  });

  it("keeps the breakdowns of several metrics and by several things apart", () => {
    const { breakdowns } = sortMetricNames([
      "accuracy_age_under_5",
      "macro_f1_age_under_5",
      "accuracy_new_ones",
      "nodes_age_under_5",
      "nodes_new_ones",
    ]);
    expect(
      breakdowns.map(({ metric, dimension, parts }) => [metric, dimension, parts[0]?.label]),
    ).toEqual([
      ["accuracy", "age", "< 5"],
      ["macro_f1", "age", "< 5"],
      ["accuracy", null, "new ones"],
    ]);
  });

  it("takes a name that ends in a number for a metric where no count says otherwise", () => {
    expect(sortMetricNames(["hits_at_10", "macro_f1", "nodes_per_s_0"])).toMatchObject({
      metrics: ["hits_at_10", "macro_f1"],
      counts: [],
    });
  });
});
