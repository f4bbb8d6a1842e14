/** Float16 numbers as bits: older browsers have no array of them. */

let known: Float32Array | null = null;

/** The value of every float16 number, by its bits. */
export function float16Values(): Float32Array {
  if (known) return known;
  const values = new Float32Array(1 << 16);
  for (let bits = 0; bits < values.length; bits++) {
    const size = magnitude((bits >> 10) & 31, bits & 1023);
    values[bits] = bits >> 15 ? -size : size;
  }
  return (known = values);
}

function magnitude(exponent: number, fraction: number): number {
  if (exponent === 0) return fraction * 2 ** -24;
  if (exponent < 31) return (1024 + fraction) * 2 ** (exponent - 25);
  return fraction === 0 ? Infinity : NaN;
}

/** The bits of the float16 number that is nearest to `value`; of two, the one whose last bit is 0. */
export function float16Bits(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  const exponent = Math.min(Math.max(Math.floor(Math.log2(size)), -14), 16);
  const steps = roundToEven(size / 2 ** (exponent - 10));
  // From 1024 steps on the bits of the exponent follow from the sum: rounding may carry into them.
  return sign | Math.min(steps + ((exponent + 14) << 10), 0x7c00);
}

function roundToEven(value: number): number {
  const below = Math.floor(value);
  const rest = value - below;
  return below + (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? 1 : 0);
}
