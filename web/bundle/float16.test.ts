import { describe, expect, it } from "vitest";
import { float16Bits, float16Values } from "./float16.ts";

describe("float16", () => {
  it("gives every number the bits that it was read from", () => {
    float16Values().forEach((value, bits) => {
      expect(float16Bits(value)).toBe(Number.isNaN(value) ? 0x7e00 : bits);
    });
  });

  it.each([
    [1 + 2 ** -11, 0x3c00], // between two: the even one
    [1 + 3 * 2 ** -11, 0x3c02],
    [2 ** -25, 0],
    [2 ** -25 * 1.01, 1],
    [2 - 2 ** -12, 0x4000], // rounding carries into the exponent
    [65519, 0x7bff],
    [65520, 0x7c00],
    [-1e10, 0xfc00],
  ])("rounds %d", (value, bits) => {
    expect(float16Bits(value)).toBe(bits);
  });
});
