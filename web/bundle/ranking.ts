import { Best, type Ranked } from "./best.ts";
import type { Score } from "./description.ts";
import type { Rows } from "./rows.ts";

const BLOCK_ROWS = 1024;
/** Products between two pauses in which the page can react: about 10 ms. */
const PRODUCTS_AT_ONCE = 1 << 23;

/** Lets the page react. */
export const pause = () => new Promise((resolve) => setTimeout(resolve));

/** Exact ranking of all rows of a table. */
export class Ranking {
  private lengths: Promise<Float32Array> | null = null;

  constructor(
    private readonly rows: Rows,
    private readonly score: Score,
  ) {}

  get count(): number {
    return this.rows.count;
  }

  /**
   * The best `k` rows, best first; ties go to the lower index.
   *
   * Cosine divides by the lengths of query and row; a zero row scores 0.
   *
   * @param query Several vectors, one after the other, where the largest of their scores counts.
   * @param exclude Index of a row that is no candidate, or null.
   */
  async best(query: Float32Array, k: number, exclude: number | null): Promise<Ranked[]> {
    const dim = this.rows.dim;
    const lengths = this.score === "cosine" ? await (this.lengths ??= this.measure()) : null;
    const vector = lengths ? unit(query) : query;
    const best = new Best(k);
    await this.eachBlock((start, stop, block) => {
      for (let index = start; index < stop; index++) {
        const offset = (index - start) * dim;
        let score = -Infinity;
        for (let first = 0; first < vector.length; first += dim) {
          let product = 0;
          for (let i = 0; i < dim; i++) product += vector[first + i]! * block[offset + i]!;
          score = Math.max(score, product);
        }
        if (lengths) score /= lengths[index]!;
        if (index !== exclude) best.offer(index, score);
      }
    });
    return best.found;
  }

  /** Length of each row, 1 for zero rows. */
  private async measure(): Promise<Float32Array> {
    const lengths = new Float32Array(this.rows.count);
    const dim = this.rows.dim;
    await this.eachBlock((start, stop, block) => {
      for (let row = start; row < stop; row++) {
        const offset = (row - start) * dim;
        lengths[row] = norm(block.subarray(offset, offset + dim)) || 1;
      }
    });
    return lengths;
  }

  private async eachBlock(
    use: (start: number, stop: number, block: Float32Array) => void,
  ): Promise<void> {
    const { count, dim } = this.rows;
    const buffer = new Float32Array(BLOCK_ROWS * dim);
    const blocksAtOnce = Math.max(1, Math.floor(PRODUCTS_AT_ONCE / buffer.length));
    for (let start = 0, number = 1; start < count; start += BLOCK_ROWS, number++) {
      const stop = Math.min(start + BLOCK_ROWS, count);
      use(start, stop, this.rows.block(start, stop, buffer));
      if (number % blocksAtOnce === 0) await pause();
    }
  }
}

function norm(vector: Float32Array): number {
  let squares = 0;
  for (const value of vector) squares += value * value;
  return Math.sqrt(squares);
}

function unit(vector: Float32Array): Float32Array {
  const length = norm(vector);
  return length > 0 ? vector.map((value) => value / length) : vector;
}
