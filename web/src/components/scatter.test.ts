import { describe, expect, it } from "vitest";
import { linearRange, logRange, logTicks, nearestMark, placeLabel } from "./scatter";

describe("the axes of a scatter chart", () => {
  it("hold all values with room, of one value too", () => {
    for (const values of [[5e6, 38e6], [7e6], [100, 100]]) {
      const [low, high] = logRange(values);
      expect(low).toBeLessThan(Math.min(...values));
      expect(high).toBeGreaterThan(Math.max(...values));
    }
    for (const values of [[0.1, 0.4], [0.3], [0, 0], [-1, -1]]) {
      const [low, high] = linearRange(values);
      expect(low).toBeLessThan(Math.min(...values));
      expect(high).toBeGreaterThan(Math.max(...values));
    }
  });

  it("have round ticks within their range, at least three where it is not tiny", () => {
    expect(logTicks([4.2e6, 44e6])).toEqual([5e6, 10e6, 20e6]);
    expect(logTicks([900, 1.1e6])).toEqual([1e3, 1e4, 1e5, 1e6]);
    expect(logTicks([6.5e6, 8.1e6])).toEqual([6.5e6, 8.1e6]);
    for (const ratio of [1.5, 2, 4, 9, 30]) {
      for (const low of [1.1e6, 2.7e6, 5.3e6, 9.9e6]) {
        const ticks = logTicks([low, low * ratio]);
        expect(ticks.length).toBeGreaterThan(1);
        expect(ticks.length).toBeLessThan(10);
        expect(ticks.every((tick) => tick >= low && tick <= low * ratio)).toBe(true);
      }
    }
  });
});

describe("the labels of a scatter chart", () => {
  const area = { left: 0, top: 0, width: 200, height: 100 };
  const size = { width: 20, height: 10 };

  it("stand above their mark, else where nothing is covered", () => {
    const mark = { x: 100, y: 50 };
    const first = placeLabel(mark, size, 5, [], area);
    expect(first).toEqual({ left: 90, top: 35, ...size });
    expect(placeLabel(mark, size, 5, [first!], area)).toEqual({ left: 105, top: 45, ...size });
    expect(placeLabel(mark, size, 5, [area], area)).toBeNull();
    expect(placeLabel({ x: 100, y: 2 }, size, 5, [], area)?.top).toBe(7);
  });

  it("belong to the nearest mark within reach", () => {
    const places = [
      { x: 0, y: 0 },
      { x: 50, y: 0 },
    ];
    expect(nearestMark(places, { x: 30, y: 0 }, 25)).toBe(1);
    expect(nearestMark(places, { x: 25, y: 40 }, 25)).toBeNull();
    expect(nearestMark([], { x: 0, y: 0 }, 25)).toBeNull();
  });
});
