import { describe, expect, it } from "vitest";
import { makeFormat } from "@/i18n/format";
import { fieldLabel, fieldValue, flattenFields } from "./field-text";

const format = makeFormat("en");

describe("fields of open documents", () => {
  it.each([
    ["size_bytes", 7_300_000, "size", "7.3 MB"],
    ["latency_ms", 1.31, "latency", "1.31 ms"],
    ["wall_seconds", 62, "wall", "1m 2s"],
    ["rows_per_s", 4920, "rows per s", "4,920"],
    ["provider", "cpu", "provider", "cpu"],
    ["shapes", [1, 64], "shapes", "1, 64"],
    ["fallback", null, "fallback", "–"],
    ["exact", true, "exact", "true"],
  ])("%s: %s", (name, value, label, text) => {
    expect(fieldLabel(name)).toBe(label);
    expect(fieldValue({ name, value }, format)).toBe(text);
  });

  it("are listed under the names that lead to them", () => {
    expect(flattenFields({ a: 1, b: { c: 2, d: { e: 3 } } })).toEqual([
      { name: "a", value: 1 },
      { name: "b c", value: 2 },
      { name: "b d e", value: 3 },
    ]);
  });
});
