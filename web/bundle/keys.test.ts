import { expect, it } from "vitest";
import { digestNumber, salted, textHash } from "./keys.ts";

/** Length of a text, and what `hashlib` and XXH64 of `graphbox/fields/keys.py` make of it. */
const HASHED: [number, bigint, bigint][] = [
  [0, 0xb4b2797457a0a6e4n, 0xef46db3751d8e999n],
  [1, 0xad19753f0a3de800n, 0x8a4127811b21e730n],
  [3, 0x2c9acd9feca9dc66n, 0x31d2363f52e564c9n],
  [8, 0x543dd37a9528be5fn, 0xd5474d6ca50def58n],
  [12, 0x3d448701d7f24ecen, 0xa4743d1733af563bn],
  [31, 0xde5c801b10719d1fn, 0xc025b4c3c4880c7an],
  [32, 0x20397cd8c185dfcfn, 0x178ae25cee6f7994n],
  [45, 0x0a3c0dec0a53d24cn, 0xa8939f0c620bbd8an],
  [127, 0xccb7a9be516b2a26n, 0x6a3ed4d81cb3746fn],
  [128, 0xd4bd8db997060b59n, 0xdb69645e5f1b9117n],
  [129, 0x87632c5fd17a3442n, 0x01d56b13508b2a12n],
  [300, 0xb7ec26975c6cff06n, 0xcd0705ebef96ea9fn],
];

const SALT = 0x0123456789abcdefn;
const SALTED: [bigint, bigint][] = [
  [0n, SALT],
  [1n, 0xb575f99bbd6906c3n],
  [-1n, 0x6596376cc22992cen],
  [2n ** 63n - 1n, 0xaa9a7897209b2005n],
  [-(2n ** 63n), 0x8e5b4d77269a697cn],
];

it.each(HASHED)("texts of %i bytes", (length, digest, hash) => {
  const text = Uint8Array.from({ length }, (_, i) => (7 * i + length) % 256);
  expect(digestNumber(text)).toBe(digest);
  expect(textHash(text)).toBe(hash);
  // A part of a larger buffer is read from its own start.
  const part = new Uint8Array([9, 9, 9, ...text, 9]).subarray(3, 3 + length);
  expect(textHash(part)).toBe(hash);
});

it.each(SALTED)("the key %s", (key, expected) => {
  expect(salted(key, SALT)).toBe(expected);
});
