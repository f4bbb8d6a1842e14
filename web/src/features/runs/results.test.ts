import { describe, expect, it } from "vitest";
import { taskResults } from "./results";

const report = {
  training: {},
  metrics: {
    companion: {
      sage: {
        "recall@20": 0.35,
        "ndcg@20": 0.29,
        "arp@20": 41.5,
        mrr: 0.2,
        queries: 7,
        "recall@20_rare": 0.1,
        positives_rare: 3,
      },
    },
  },
  baselines: {
    companion: {
      user_knn: { "recall@20": 0.36, "ndcg@20": 0.28, "arp@20": 90, mrr: 0.2, queries: 7 },
      popular: { "recall@20": 0.14, "ndcg@20": null },
    },
    section: { majority: { accuracy: 0.1 } },
  },
  baselines_left_out: { companion: { ease: "left out, about 38 min on this graph" } },
  notes: { companion: { sage: "validation recall@20 0.340" } },
  export: {},
  compress: {},
  bench: {},
};

describe("taskResults", () => {
  const [companion, section] = taskResults(report);

  it("puts models and baselines together, best first", () => {
    expect(companion!.rows.map(({ model, baseline }) => [model, baseline])).toEqual([
      ["user_knn", true],
      ["sage", false],
      ["popular", true],
    ]);
  });

  it("marks the best value of each metric, whoever has it, unless all are equal", () => {
    expect(companion!.best).toEqual({ "recall@20": 0.36, "ndcg@20": 0.29 });
  });

  it("keeps counts and metrics of parts apart", () => {
    expect(companion!.metrics).toEqual(["recall@20", "ndcg@20", "arp@20", "mrr"]);
    expect(companion!.counts).toEqual(["queries"]);
    expect(companion!.countValues).toEqual({ queries: 7, positives_rare: 3 });
    expect(companion!.breakdowns).toMatchObject([
      { metric: "recall@20", parts: [{ metric: "recall@20_rare", label: "rare" }] },
    ]);
  });

  it("says what figures mean, and which baselines did not run", () => {
    expect(companion!.notes).toEqual([
      { name: "ease", text: "left out, about 38 min on this graph" },
      { name: "sage", text: "validation recall@20 0.340" },
    ]);
  });

  it("shows a task that has baselines only", () => {
    expect(section).toMatchObject({ task: "section", metrics: ["accuracy"], notes: [] });
  });
});
