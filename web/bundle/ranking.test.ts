import { expect, it } from "vitest";
import type { TableSpec } from "./description.ts";
import type { BundleFiles } from "./files.ts";
import { Ranking } from "./ranking.ts";
import { Rows } from "./rows.ts";

const VALUES = Float32Array.of(1, 0, 0, 1, -1, -1, 2, 1);

const rows = () => {
  const files = { array: () => Promise.resolve(VALUES) } as unknown as BundleFiles;
  const spec = { codec: "float32", rows: 4, dim: 2, values: "values.npy" } as TableSpec;
  return Rows.load(files, spec);
};

it("ranks rows by the largest score of several vectors", async () => {
  const ranking = new Ranking(await rows(), "max_inner_product");
  const found = await ranking.best(Float32Array.of(1, 0, -3, -3), 4, null);
  // Scores by the first vector: 1, 0, -1, 2; by the second: -3, -3, 6, -9.
  expect(found).toEqual([
    { index: 2, score: 6 },
    { index: 3, score: 2 },
    { index: 0, score: 1 },
    { index: 1, score: 0 },
  ]);
  expect(await ranking.best(Float32Array.of(1, 0, -3, -3), 1, 2)).toEqual([{ index: 3, score: 2 }]);
});

it("ranks rows by one vector", async () => {
  const ranking = new Ranking(await rows(), "cosine");
  const found = await ranking.best(Float32Array.of(0, 3), 2, null);
  expect(found[0]).toEqual({ index: 1, score: 1 });
  expect(found[1]!.index).toBe(3);
  expect(found[1]!.score).toBeCloseTo(1 / Math.sqrt(5));
});
