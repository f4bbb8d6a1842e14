/** Keys of values: 64-bit integers without sign, as `graphbox/fields/keys.py` computes them. */

const wrap = (value: bigint) => BigInt.asUintN(64, value);
const rotatedRight = (value: bigint, by: bigint) => (value >> by) | wrap(value << (64n - by));
const rotatedLeft = (value: bigint, by: bigint) => rotatedRight(value, 64n - by);

const BLOCK_BYTES = 128;
/** Length of the digest, and no key; RFC 7693, section 2.5. */
const PARAMETERS = 0x01010008n;
const INITIAL = [
  0x6a09e667f3bcc908n,
  0xbb67ae8584caa73bn,
  0x3c6ef372fe94f82bn,
  0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n,
  0x9b05688c2b3e6c1fn,
  0x1f83d9abfb41bd6bn,
  0x5be0cd19137e2179n,
];
/** Order of the words of a block in each round; the last two rounds use the first two orders. */
const ORDERS = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
  [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
  [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
  [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
  [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
  [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
] as const;
const ROUNDS = 12;
/** Columns, then diagonals of the 4 x 4 working vector. */
const MIXED = [
  [0, 4, 8, 12],
  [1, 5, 9, 13],
  [2, 6, 10, 14],
  [3, 7, 11, 15],
  [0, 5, 10, 15],
  [1, 6, 11, 12],
  [2, 7, 8, 13],
  [3, 4, 9, 14],
] as const;

/** The first 8 bytes of the BLAKE2b digest of a text (RFC 7693), little-endian. */
export function digestNumber(text: Uint8Array): bigint {
  const state = BigUint64Array.from(INITIAL);
  state[0]! ^= PARAMETERS;
  const blocks = Math.max(1, Math.ceil(text.length / BLOCK_BYTES));
  for (let block = 0; block < blocks; block++) {
    const bytes = new Uint8Array(BLOCK_BYTES);
    bytes.set(text.subarray(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES));
    const isLast = block === blocks - 1;
    const end = isLast ? text.length : (block + 1) * BLOCK_BYTES;
    compress(state, new DataView(bytes.buffer), end, isLast);
  }
  return state[0]!;
}

/** The function F of RFC 7693; `end` is the number of bytes up to the end of the block. */
function compress(state: BigUint64Array, block: DataView, end: number, isLast: boolean): void {
  // Elements of the array are reduced modulo 2^64 as they are written.
  const v = BigUint64Array.from([...state, ...INITIAL]);
  v[12]! ^= BigInt(end);
  if (isLast) v[14] = ~v[14]!;
  for (let round = 0; round < ROUNDS; round++) {
    const order = ORDERS[round % ORDERS.length]!;
    MIXED.forEach(([a, b, c, d], i) => {
      v[a] = v[a]! + v[b]! + block.getBigUint64(8 * order[2 * i]!, true);
      v[d] = rotatedRight(v[d]! ^ v[a], 32n);
      v[c]! += v[d];
      v[b] = rotatedRight(v[b]! ^ v[c]!, 24n);
      v[a] = v[a] + v[b] + block.getBigUint64(8 * order[2 * i + 1]!, true);
      v[d] = rotatedRight(v[d] ^ v[a], 16n);
      v[c]! += v[d];
      v[b] = rotatedRight(v[b] ^ v[c]!, 63n);
    });
  }
  state.forEach((value, i) => (state[i] = value ^ v[i]! ^ v[i + 8]!));
}

/** `mix(key) ^ salt`; `mix` is the 64-bit finalizer of MurmurHash3 (Appleby, 2011). */
export function salted(key: bigint, salt: bigint): bigint {
  const fold = (bits: bigint) => bits ^ (bits >> 33n);
  let bits = fold(wrap(key));
  bits = fold(wrap(bits * 0xff51afd7ed558ccdn));
  bits = fold(wrap(bits * 0xc4ceb9fe1a85ec53n));
  return bits ^ salt;
}

const PRIMES = [
  0x9e3779b185ebca87n,
  0xc2b2ae3d27d4eb4fn,
  0x165667b19e3779f9n,
  0x85ebca77c2b2ae63n,
  0x27d4eb2f165667c5n,
] as const;
const STRIPE_BYTES = 32;

/** The number of a slot's value that is a text: XXH64 (Collet, 2014) with seed 0. */
export function textHash(text: Uint8Array): bigint {
  const [first, second, third, fourth, fifth] = PRIMES;
  const view = new DataView(text.buffer, text.byteOffset, text.byteLength);
  const round = (lane: bigint, block: bigint) =>
    wrap(rotatedLeft(wrap(lane + block * second), 31n) * first);
  let at = 0;
  let hash: bigint = fifth;
  if (text.length >= STRIPE_BYTES) {
    const lanes = [wrap(first + second), second, 0n, wrap(-first)];
    for (; at + STRIPE_BYTES <= text.length; at += STRIPE_BYTES) {
      lanes.forEach((lane, i) => (lanes[i] = round(lane, view.getBigUint64(at + 8 * i, true))));
    }
    const turns = [1n, 7n, 12n, 18n] as const;
    hash = wrap(lanes.reduce((sum, lane, i) => sum + rotatedLeft(lane, turns[i]!), 0n));
    for (const lane of lanes) hash = wrap((hash ^ round(0n, lane)) * first + fourth);
  }
  hash = wrap(hash + BigInt(text.length));
  for (; at + 8 <= text.length; at += 8) {
    hash ^= round(0n, view.getBigUint64(at, true));
    hash = wrap(rotatedLeft(hash, 27n) * first + fourth);
  }
  if (at + 4 <= text.length) {
    hash ^= wrap(BigInt(view.getUint32(at, true)) * first);
    hash = wrap(rotatedLeft(hash, 23n) * second + third);
    at += 4;
  }
  for (; at < text.length; at++) {
    hash = wrap(rotatedLeft(hash ^ wrap(BigInt(text[at]!) * fifth), 11n) * first);
  }
  hash = wrap((hash ^ (hash >> 33n)) * second);
  hash = wrap((hash ^ (hash >> 29n)) * third);
  return hash ^ (hash >> 32n);
}
