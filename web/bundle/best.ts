export interface Ranked {
  index: number;
  score: number;
}

/** The `k` highest scores of those offered, best first; ties go to what was offered earlier. */
export class Best {
  readonly found: Ranked[] = [];

  constructor(private readonly k: number) {}

  offer(index: number, score: number): void {
    const { found, k } = this;
    if (found.length === k && !(score > found[k - 1]!.score)) return;
    let place = found.length;
    while (place > 0 && found[place - 1]!.score < score) place--;
    found.splice(place, 0, { index, score });
    if (found.length > k) found.pop();
  }
}
