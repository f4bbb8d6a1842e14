import { describe, expect, it } from "vitest";
import { taskResults } from "./results";

const report = {
  metrics: { companion: { sage: { "recall@20": 0.35, "ndcg@20": 0.29, "recall@20/rare": 0.1 } } },
  baselines: {
    companion: {
      user_knn: { "recall@20": 0.36, "ndcg@20": 0.28 },
      popular: { "recall@20": 0.14, "ndcg@20": null },
    },
    section: { majority: { accuracy: 0.1 } },
  },
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

  it("marks the best value of each metric, whoever has it", () => {
    expect(companion!.best).toMatchObject({ "recall@20": 0.36, "ndcg@20": 0.29 });
  });

  it("keeps metrics of parts of the queries apart", () => {
    expect(companion!.metrics).toEqual(["recall@20", "ndcg@20"]);
    expect(companion!.breakdown).toEqual(["recall@20/rare"]);
  });

  it("shows a task that has baselines only", () => {
    expect(section).toMatchObject({ task: "section", metrics: ["accuracy"] });
  });
});
