import { describe, expect, it } from "vitest";
import { chosenSettings } from "./chosen-settings";

const appnp = { layer: "appnp", layers: 10, layer_options: { alpha: 0.1 } };

describe("chosenSettings", () => {
  it("lists trials best first, then those that were pruned, and those without a figure last", () => {
    const early = { state: "pruned", value: 0.8, cost: -0.8, median: 0.805, epochs: 4, seconds: 1 };
    const trials = [
      { settings: { layer: "gat" }, ...early },
      { settings: { layer: "gcn" }, state: "refused", value: null, cost: null, seconds: 0.5 },
      { settings: { layer: "sage" }, state: "measured", value: 0.77, cost: -0.77, seconds: 4 },
      { settings: appnp, state: "measured", value: 0.81, cost: -0.81, seconds: 6 },
    ];
    const [found] = chosenSettings({
      network: { epochs: 40, chosen: { settings: appnp, why: "best", metric: "accuracy", trials } },
    });
    expect(found).toMatchObject({ model: "network", why: "best", metric: "accuracy" });
    expect(found?.settings).toBe("layer appnp, layers 10, layer_options {alpha 0.1}");
    expect(found?.trials.map(({ number, value, pruned }) => [number, value, pruned])).toEqual([
      [4, 0.81, null],
      [3, 0.77, null],
      [1, 0.8, { epoch: 4, median: 0.805 }],
      [2, null, null],
    ]);
  });

  it("leaves models out of which nothing was chosen", () => {
    const nothing = { settings: {}, why: "", metric: "", trials: [] };
    expect(chosenSettings({ a: { epochs: 4 }, b: { chosen: nothing } })).toEqual([]);
  });
});
