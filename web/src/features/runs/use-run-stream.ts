import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, serverAddress } from "@/api/client";
import type { RunMetrics } from "@/api/types";
import { appendPoints, type MetricPoint, type NumberedPoint } from "./run-metrics";

const FLUSH_MS = 250;
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 15_000;
export const MAX_POINTS = 1_000;

/** How the connection to the run's events stands. */
export type StreamState =
  | { kind: "idle" }
  | { kind: "connecting" }
  | { kind: "live" }
  | { kind: "reconnecting"; attempt: number }
  | { kind: "ended" };

export const metricsQuery = (runId: string) =>
  api.queryOptions("get", "/api/v1/runs/{run_id}/metrics", {
    params: { path: { run_id: runId }, query: { max_points: MAX_POINTS } },
  });

export const runQuery = (runId: string) =>
  api.queryOptions("get", "/api/v1/runs/{run_id}", { params: { path: { run_id: runId } } });

/**
 * Follows a run: its new points go into the cached metrics, a change of its state refreshes the
 * cached run. Starts once the history is there and goes on after the last line of it.
 */
export function useRunStream(runId: string, enabled: boolean): StreamState {
  const queryClient = useQueryClient();
  const [state, setState] = useState<StreamState>({ kind: "idle" });
  useEffect(() => {
    if (!enabled) return;
    const stream = new RunStream(runId, queryClient, setState);
    stream.open();
    return () => stream.close();
  }, [runId, enabled, queryClient]);
  return enabled || state.kind === "ended" ? state : { kind: "idle" };
}

class RunStream {
  private source: EventSource | null = null;
  private pending: NumberedPoint[] = [];
  private flushTimer: ReturnType<typeof setTimeout> | undefined;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private attempt = 0;

  constructor(
    private readonly runId: string,
    private readonly queryClient: QueryClient,
    private readonly report: (state: StreamState) => void,
  ) {}

  open(): void {
    this.report(this.attempt === 0 ? { kind: "connecting" } : this.reconnecting());
    const address = new URL(serverAddress("/api/v1/events"));
    address.searchParams.set("run", this.runId);
    address.searchParams.set("after", String(this.lastLine()));
    const source = new EventSource(address);
    this.source = source;
    source.addEventListener("open", () => {
      this.attempt = 0;
      this.report({ kind: "live" });
    });
    source.addEventListener("point", (event: MessageEvent<string>) => this.take(event));
    source.addEventListener("run", () => this.refresh());
    source.addEventListener("end", () => this.end());
    source.addEventListener("error", () => this.onError(source));
  }

  close(): void {
    this.source?.close();
    clearTimeout(this.retryTimer);
    clearTimeout(this.flushTimer);
    this.flush();
  }

  private take(event: MessageEvent<string>): void {
    this.pending.push({
      line: Number(event.lastEventId),
      point: JSON.parse(event.data) as MetricPoint,
    });
    this.flushTimer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  private flush(): void {
    this.flushTimer = undefined;
    const points = this.pending.splice(0);
    if (points.length === 0) return;
    this.queryClient.setQueryData<RunMetrics>(metricsQuery(this.runId).queryKey, (metrics) =>
      metrics ? appendPoints(metrics, points) : metrics,
    );
  }

  private refresh(): void {
    void this.queryClient.invalidateQueries({ queryKey: runQuery(this.runId).queryKey });
  }

  private end(): void {
    this.source?.close();
    this.flush();
    this.refresh();
    this.report({ kind: "ended" });
  }

  /** The browser reconnects by itself unless the answer was an HTTP error; then it is on us. */
  private onError(source: EventSource): void {
    this.attempt += 1;
    this.report(this.reconnecting());
    if (source.readyState !== EventSource.CLOSED) return;
    const delay = Math.min(FIRST_RETRY_MS * 2 ** (this.attempt - 1), LONGEST_RETRY_MS);
    this.flush();
    this.retryTimer = setTimeout(() => this.open(), delay);
  }

  private reconnecting(): StreamState {
    return { kind: "reconnecting", attempt: this.attempt };
  }

  private lastLine(): number {
    const key = metricsQuery(this.runId).queryKey;
    return this.queryClient.getQueryData<RunMetrics>(key)?.last_line ?? 0;
  }
}
