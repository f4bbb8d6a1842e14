import { describe, expect, it } from "vitest";
import { makeFormat } from "./format";

const english = makeFormat("en");
const chinese = makeFormat("zh-CN");

describe("formats", () => {
  it("writes sizes in decimal units", () => {
    expect([0, 999, 1000, 7_300_000, 1.32e9].map((size) => english.bytes(size))).toEqual([
      "0 byte",
      "999 byte",
      "1 kB",
      "7.3 MB",
      "1.32 GB",
    ]);
  });

  it("writes durations in the two largest units", () => {
    expect([0.42, 59, 60, 402.7, 7500, 90_000].map((time) => english.seconds(time))).toEqual([
      "0.42s",
      "59s",
      "1m",
      "6m 42s",
      "2h 5m",
      "1d 1h",
    ]);
    expect(chinese.seconds(402.7)).toBe("6分钟 42秒");
  });

  it("writes large numbers as each language counts", () => {
    expect(english.compact(63_714)).toBe("63.7K");
    expect(chinese.compact(63_714)).toBe("6.37万");
  });

  it("writes tiny numbers with an exponent and quality with four decimals", () => {
    expect(english.number(2.4e-7)).toBe("2.4E-7");
    expect(english.number(0)).toBe("0");
    expect(english.quality(0.35)).toBe("0.3500");
    expect(english.quality(41_000)).toBe("41,000");
  });

  it("says how long ago something was", () => {
    const now = Date.parse("2026-01-02T12:00:00Z");
    expect(english.ago("2026-01-02T11:57:00Z", now)).toBe("3 minutes ago");
    expect(english.ago("2026-01-01T12:00:00Z", now)).toBe("yesterday");
    expect(chinese.ago("2026-01-02T11:57:00Z", now)).toBe("3分钟前");
  });
});
