/** Places and scales of a scatter chart, apart from drawing it. */

export interface Mark {
  x: number;
  y: number;
  /** Largest standard error of `y`; null where it is not known. */
  error: number | null;
  /** Name of the CSS variable of its colour. */
  color: string;
  /** A large mark stands for something that was kept; it may be filled. */
  shape: "small" | "ring" | "disc" | "diamond";
  /** Written beside the mark. */
  label?: string;
}

export interface Limit {
  value: number;
  label: string;
}

type Range = [low: number, high: number];

const MARGIN = 0.08;

/** The range of a logarithmic axis that holds all values, with some room. */
export function logRange(values: number[]): Range {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max((high / low) ** MARGIN, 1.05);
  return [low / room, high * room];
}

/** The range of a linear axis that holds all values, with some room. */
export function linearRange(values: number[]): Range {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low) * MARGIN || Math.abs(high) * MARGIN || 1;
  return [low - room, high + room];
}

const STEPS = [
  [1, 10],
  [1, 3],
  [1, 2, 5],
  [1, 1.5, 2, 3, 5, 7],
  [1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9],
];
const FEWEST = 3;

/** Round values for the ticks of a logarithmic axis: the fewest that leave none of it without a scale. */
export function logTicks([low, high]: Range): number[] {
  const decades: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    decades.push(10 ** power);
  }
  for (const steps of STEPS) {
    const ticks = decades
      .flatMap((decade) => steps.map((step) => step * decade))
      .filter((tick) => tick >= low && tick <= high);
    if (ticks.length >= FEWEST) return [...new Set(ticks)].sort((a, b) => a - b);
  }
  return [low, high];
}

/** A rectangle, in pixels. */
export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

const overlap = (a: Box, b: Box) =>
  a.left < b.left + b.width &&
  b.left < a.left + a.width &&
  a.top < b.top + b.height &&
  b.top < a.top + a.height;

/** Places a label above, right, left or below a mark where it covers nothing; null where it would. */
export function placeLabel(
  mark: { x: number; y: number },
  size: { width: number; height: number },
  gap: number,
  taken: Box[],
  area: Box,
): Box | null {
  const { width, height } = size;
  const spots = [
    { left: mark.x - width / 2, top: mark.y - gap - height },
    { left: mark.x + gap, top: mark.y - height / 2 },
    { left: mark.x - gap - width, top: mark.y - height / 2 },
    { left: mark.x - width / 2, top: mark.y + gap },
  ].map((spot) => ({ ...spot, width, height }));
  const isFree = (box: Box) =>
    box.left >= area.left &&
    box.top >= area.top &&
    box.left + width <= area.left + area.width &&
    box.top + height <= area.top + area.height &&
    !taken.some((other) => overlap(box, other));
  return spots.find(isFree) ?? null;
}

/** The mark that is nearest to a place and not farther than `reach`; null where there is none. */
export function nearestMark(
  places: { x: number; y: number }[],
  place: { x: number; y: number },
  reach: number,
): number | null {
  const distances = places.map(({ x, y }) => Math.hypot(x - place.x, y - place.y));
  const least = Math.min(...distances);
  return least <= reach ? distances.indexOf(least) : null;
}
