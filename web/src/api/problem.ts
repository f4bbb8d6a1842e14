import type { Problem } from "./types";

/** What can go wrong with a request, told apart by what a person can do about it. */
export type Failure =
  | { kind: "problem"; problem: Problem }
  | { kind: "unreachable" }
  | { kind: "unexpected"; text: string };

function isProblem(value: unknown): value is Problem {
  return (
    typeof value === "object" &&
    value !== null &&
    typeof (value as Partial<Problem>).message === "string" &&
    typeof (value as Partial<Problem>).code === "string"
  );
}

/** Tells what an error thrown by a query or by `fetch` was. */
export function toFailure(error: unknown): Failure {
  if (isProblem(error)) return { kind: "problem", problem: error };
  // `fetch` rejects with a TypeError when no answer came at all.
  if (error instanceof TypeError) return { kind: "unreachable" };
  if (error instanceof Error) return { kind: "unexpected", text: error.message };
  return { kind: "unexpected", text: typeof error === "string" ? error : JSON.stringify(error) };
}

/** Repeats only what may pass by itself: no answer at all, or an answer of a proxy in between. */
export function shouldRetry(failures: number, error: unknown): boolean {
  return toFailure(error).kind !== "problem" && failures < 2;
}
