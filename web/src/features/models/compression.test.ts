import { describe, expect, it } from "vitest";
import { compression } from "@/testing/compression-fixtures";
import { originalLatency, placedModels, searchCommand, speedOf } from "./compression";

describe("the models of a search", () => {
  it("have their roles, the important ones drawn last, with the figures measured together", () => {
    const placed = placedModels(compression);
    expect(placed.map(({ role, version }) => [role, version])).toEqual([
      ["beyond", null],
      ["original", 1],
      ["point", 3],
      ["chosen", 2],
    ]);
    expect(placed.at(-1)?.trial.latency?.p50_ms).toBe(0.3);
    expect(placed.map(({ value }) => value)).toEqual([0.31, 0.351, 0.3512, 0.3495]);
  });

  it("are tried ones where nothing was found yet", () => {
    const roles = placedModels({ ...compression, points: [], chosen: null }).map(
      ({ role }) => role,
    );
    expect(roles).toEqual(["beyond", "tried", "tried", "original"]);
  });

  it("are faster or slower than the original only where all repeats were", () => {
    const [chosen, larger] = compression.points;
    expect(speedOf(chosen!)).toBe("faster");
    expect(speedOf(larger!)).toBe("same");
    const latency = { ...chosen!.latency!, original_p50_ms: 0.2 };
    expect(speedOf({ ...chosen!, latency })).toBe("slower");
    expect(speedOf({ ...chosen!, latency: null })).toBeNull();
  });

  it("have an original that was measured in turns with the points, else alone", () => {
    expect(originalLatency(compression)).toEqual({ p50_ms: 0.5, p99_ms: 0.9 });
    expect(originalLatency({ ...compression, points: [] })?.p50_ms).toBe(0.45);
  });

  it("are found by a command", () => {
    expect(searchCommand("shop")).toBe("graphbox compress shop --max-drop 0.5% --trials 20");
  });
});
