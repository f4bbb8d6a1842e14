import { describe, expect, it } from "vitest";
import type { RunMetrics } from "@/api/types";
import { appendPoints, groupByPhase, lowerIsBetter, smooth } from "./run-metrics";

const nothing: RunMetrics = { series: [], last_line: 0, damaged_lines: 0 };
const point = (line: number, step: number, values: Record<string, number | null>) => ({
  line,
  point: { model: "sage", phase: null, step, values },
});

describe("appendPoints", () => {
  it("adds a point to each of its series", () => {
    const metrics = appendPoints(nothing, [
      point(1, 10, { loss: 2 }),
      point(2, 20, { loss: 1, "recall@20": 0.3 }),
    ]);
    expect(metrics.last_line).toBe(2);
    expect(metrics.series).toEqual([
      { model: "sage", phase: null, key: "loss", steps: [10, 20], values: [2, 1], non_finite: 0 },
      { model: "sage", phase: null, key: "recall@20", steps: [20], values: [0.3], non_finite: 0 },
    ]);
  });

  it("changes nothing when points come a second time", () => {
    const points = [point(1, 10, { loss: 2 }), point(2, 20, { loss: 1 })];
    const once = appendPoints(nothing, points);
    expect(appendPoints(once, points.slice(1))).toEqual(once);
  });

  it("replaces what a resumed run wrote anew", () => {
    const before = appendPoints(nothing, [
      point(1, 10, { loss: 3 }),
      point(2, 20, { loss: 2 }),
      point(3, 30, { loss: 1 }),
    ]);
    const after = appendPoints(before, [point(2, 20, { loss: 2.5 })]);
    expect(after.series[0]).toMatchObject({ steps: [10, 20], values: [3, 2.5] });
    expect(after.last_line).toBe(2);
  });

  it("keeps phases apart, whose steps may start again", () => {
    const inPhase = (line: number, step: number, phase: string | null) => ({
      line,
      point: { model: "sage", phase, step, values: { samples_per_s: 10 * step } },
    });
    const metrics = appendPoints(nothing, [
      inPhase(1, 1, "pretrain"),
      inPhase(2, 2, "pretrain"),
      inPhase(3, 1, null),
    ]);
    expect(metrics.series.map(({ phase, steps }) => [phase, steps])).toEqual([
      ["pretrain", [1, 2]],
      [null, [1]],
    ]);
  });

  it("counts values that are no numbers instead of drawing them", () => {
    const metrics = appendPoints(nothing, [
      point(1, 10, { loss: null }),
      point(2, 20, { loss: 1 }),
    ]);
    expect(metrics.series[0]).toMatchObject({ steps: [20], values: [1], non_finite: 1 });
  });

  it("leaves the former value untouched", () => {
    const before = appendPoints(nothing, [point(1, 10, { loss: 2 })]);
    const kept = structuredClone(before);
    appendPoints(before, [point(2, 20, { loss: 1 })]);
    expect(before).toEqual(kept);
  });
});

describe("smooth", () => {
  it("leaves values alone at weight 0 and constants at any weight", () => {
    expect(smooth([3, 1, 2], 0)).toEqual([3, 1, 2]);
    for (const value of smooth([5, 5, 5], 0.9)) expect(value).toBeCloseTo(5, 12);
  });

  it("is the weighted mean of all values so far", () => {
    const weight = 0.6;
    const values = [1, 4, 2, 8];
    smooth(values, weight).forEach((value, last) => {
      const weights = values.slice(0, last + 1).map((_, index) => weight ** (last - index));
      const total = weights.reduce((sum, entry) => sum + entry, 0);
      const mean = weights.reduce((sum, entry, index) => sum + entry * values[index]!, 0) / total;
      expect(value).toBeCloseTo(mean, 12);
    });
  });
});

describe("groupByPhase", () => {
  it("keeps the order of models and phases and puts the loss first, speeds last", () => {
    const series = (model: string, phase: string | null, key: string) => ({
      model,
      phase,
      key,
      steps: [],
      values: [],
      non_finite: 0,
    });
    const groups = groupByPhase([
      series("skipgram", null, "samples_per_s"),
      series("sage", "pretrain", "samples_per_s"),
      series("sage", "pretrain", "pretrain_loss"),
      series("sage", null, "samples_per_s"),
      series("sage", null, "loss"),
      series("skipgram", null, "validation_accuracy"),
      series("skipgram", null, "loss"),
    ]);
    expect(
      groups.map(({ model, phase, series: own }) => [model, phase, own.map(({ key }) => key)]),
    ).toEqual([
      ["skipgram", null, ["loss", "validation_accuracy", "samples_per_s"]],
      ["sage", "pretrain", ["pretrain_loss", "samples_per_s"]],
      ["sage", null, ["loss", "samples_per_s"]],
    ]);
  });
});

describe("lowerIsBetter", () => {
  it.each([
    ["loss", true],
    ["max_absolute_error", true],
    ["p50_ms", true],
    ["recall@20", false],
    ["macro_f1", false],
    ["mrr", false],
    ["log_loss.bought", true],
    ["auc.dropped", false],
  ])("%s: %s", (key, expected) => {
    expect(lowerIsBetter(key)).toBe(expected);
  });
});
