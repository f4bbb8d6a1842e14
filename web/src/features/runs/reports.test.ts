import { describe, expect, it } from "vitest";
import { finishedRun } from "@/testing/fixtures";
import { benchRows, comparisons, exportRows } from "./reports";

describe("reports of the stages", () => {
  const { report } = finishedRun;

  it("reads the errors of exported models", () => {
    expect(exportRows(report.export)).toEqual([
      {
        name: "debian-companion",
        version: 1,
        size_bytes: 24_100_000,
        max_absolute_error: 2.4e-7,
        max_relative_error: 1.1e-6,
      },
    ]);
  });

  it("reads sizes and metrics before and after compression", () => {
    expect(
      comparisons(report.compress).map(({ name, before, after }) => [name, before, after]),
    ).toEqual([
      ["size_bytes", 24_100_000, 7_300_000],
      ["recall@20", 0.351, 0.3495],
    ]);
  });

  it("reads a row for each version, operation and batch size", () => {
    expect(
      benchRows(report.bench).map(({ version, operation, batch }) => [version, operation, batch]),
    ).toEqual([
      [2, "neighbors", 1],
      [2, "infer", 32],
    ]);
    const earlier = {
      m: [{ version: 1, batches: [{ batch: 1, p50_ms: 1, p99_ms: 1, rows_per_s: 1 }] }],
    };
    expect(benchRows(earlier)[0]).toMatchObject({ operation: "model" });
  });

  it("passes over what it does not know", () => {
    expect(exportRows({ m: "new form" })[0]).toMatchObject({ name: "m", size_bytes: null });
    expect(comparisons({ m: { size_bytes: 3, metric: { before: 1 } } })).toEqual([]);
    expect(benchRows({ m: [{ version: 1 }], n: 7 })).toEqual([]);
  });
});
