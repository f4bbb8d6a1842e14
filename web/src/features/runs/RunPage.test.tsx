import { act, screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { failedRun, finishedRun, metrics, runningRun } from "@/testing/fixtures";
import { FakeEventSource } from "@/testing/fake-event-source";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";

const RUNNING = "/runs/debian-20261120-1";
const FINISHED = "/runs/debian-20261119-2";

async function openStream(): Promise<FakeEventSource> {
  await waitFor(() => expect(FakeEventSource.all).not.toHaveLength(0));
  const stream = FakeEventSource.all.at(-1)!;
  act(() => stream.open());
  return stream;
}

const lossPanel = () => screen.getByRole("region", { name: "sage loss" });

function sendLoss(stream: FakeEventSource, line: number, step: number, loss: number) {
  act(() =>
    stream.send("point", { model: "sage", step, epoch: 1, time_s: 1, values: { loss } }, `${line}`),
  );
}

describe("a running run", () => {
  it("follows its events from the last line of the history on", async () => {
    renderApp(RUNNING);
    const stream = await openStream();
    const address = new URL(stream.url);
    expect(address.pathname).toBe("/api/v1/events");
    expect(address.searchParams.get("run")).toBe(runningRun.id);
    expect(address.searchParams.get("after")).toBe(String(metrics.last_line));
    expect(await screen.findByText("live")).toBeInTheDocument();
    sendLoss(stream, 131, 3025, 0.1234);
    await waitFor(() => expect(lossPanel()).toHaveTextContent("0.1234"));
    expect(lossPanel()).toHaveTextContent("at step 3,025");
  });

  it("keeps its charts and says so while the connection is lost", async () => {
    renderApp(RUNNING);
    const stream = await openStream();
    sendLoss(stream, 131, 3025, 0.1234);
    await waitFor(() => expect(lossPanel()).toHaveTextContent("0.1234"));
    act(() => stream.fail({ forGood: false }));
    expect(await screen.findByText("reconnecting (1)")).toBeInTheDocument();
    expect(lossPanel()).toHaveTextContent("0.1234");
    act(() => stream.open());
    expect(await screen.findByText("live")).toBeInTheDocument();
  });

  it("connects anew after an HTTP error, going on after the last point it has", async () => {
    renderApp(RUNNING);
    const stream = await openStream();
    sendLoss(stream, 131, 3025, 0.1234);
    act(() => stream.fail({ forGood: true }));
    await waitFor(() => expect(FakeEventSource.all).toHaveLength(2), { timeout: 3_000 });
    expect(new URL(FakeEventSource.all[1]!.url).searchParams.get("after")).toBe("131");
  });

  it("stops following when the run ends, and shows how", async () => {
    renderApp(RUNNING);
    const stream = await openStream();
    server.use(
      http.get("*/api/v1/runs/:id", () =>
        HttpResponse.json({ ...runningRun, state: "finished", report: finishedRun.report }),
      ),
    );
    act(() => stream.send("end", { state: "finished" }));
    expect(stream.readyState).toBe(FakeEventSource.CLOSED);
    expect(await screen.findByRole("tab", { name: "Results", selected: true })).toBeInTheDocument();
  });
});

describe("a finished run", () => {
  it("opens no stream and shows its results with the best value of each column marked", async () => {
    renderApp(FINISHED);
    const table = await screen.findByRole("table", { name: "Task companion" });
    const rowOf = (name: string) =>
      within(table).getByRole("row", { name: new RegExp(`^${name}`) });
    expect(within(rowOf("user_knn")).getAllByRole("img", { name: "best" })).toHaveLength(3);
    expect(within(rowOf("sage")).queryByRole("img", { name: "best" })).toBeNull();
    expect(rowOf("sage")).toHaveTextContent("0.3510");
    expect(rowOf("user_knn")).toHaveTextContent("baseline");
    expect(FakeEventSource.all).toHaveLength(0);
  });

  it("says once how much was evaluated, and makes no column of it", async () => {
    renderApp(FINISHED);
    const companion = await screen.findByRole("region", { name: "Task companion" });
    expect(companion).toHaveTextContent("3,318 queries, 6,082 links to find");
    expect(screen.getByRole("region", { name: "Task section" })).toHaveTextContent("12,353 nodes");
    const table = within(companion).getByRole("table", { name: "Task companion" });
    const columns = within(table).getAllByRole("columnheader");
    expect(columns.map(({ textContent }) => textContent)).toEqual([
      "Model",
      "recall@20",
      "ndcg@20",
      "mrr",
    ]);
  });

  it("says what validation figures mean and which baselines were left out", async () => {
    renderApp(FINISHED);
    const companion = await screen.findByRole("region", { name: "Task companion" });
    expect(companion).toHaveTextContent("ease: left out, about 14 min on this graph");
    expect(companion).toHaveTextContent("sage: validation recall@20 0.347");
  });

  it("says which settings the data chose, and what they were compared with", async () => {
    renderApp(FINISHED);
    const name = "Settings of network, chosen by the data";
    const panel = await screen.findByRole("region", { name });
    expect(panel).toHaveTextContent("best accuracy of 2, 1 more pruned: search");
    const rows = within(within(panel).getByRole("table", { name })).getAllByRole("row");
    expect(rows.slice(1).map((row) => row.textContent)).toEqual([
      "2layer appnp, layers 100.77106.1s",
      "1layer sage, layers 20.74204.2s",
      "3layer gat, layers 16pruned after epoch 20: 0.7500, median 0.76001.4s",
    ]);
  });

  it("has a table for the popularity of what is to be found", async () => {
    renderApp(FINISHED);
    const table = await screen.findByRole("table", {
      name: "Task companion: recall@20 by popularity of the target (links in training)",
    });
    const columns = within(table).getAllByRole("columnheader");
    expect(columns.map(({ textContent }) => textContent)).toEqual([
      "Model",
      "> 504,670 links to find",
      "01,412 links to find",
    ]);
    const best = within(table).getByRole("row", { name: /^adamic_adar/ });
    expect(within(best).getAllByRole("cell")[1]).toContainElement(
      within(best).getByRole("img", { name: "best" }),
    );
  });

  it("has for each chart a description and a table with the same values", async () => {
    const { user } = renderApp(`${FINISHED}?tab=training`);
    const chart = await screen.findByRole("img", {
      name: /Line chart of sage validation_recall@20/,
    });
    expect(chart).toHaveAccessibleName(/10 points, from 0.12 to 0.347/);
    await user.click(
      screen.getByRole("button", { name: "Show as table: sage validation_recall@20" }),
    );
    const table = screen.getByRole("table", { name: "sage validation_recall@20" });
    expect(within(table).getAllByRole("row")).toHaveLength(11);
    expect(within(table).getByRole("row", { name: "3,000 0.347" })).toBeInTheDocument();
  });

  it("draws the phases of a training apart, with their names", async () => {
    const phase = (name: string | null, key: string, value: number) => ({
      ...metrics.series[0]!,
      phase: name,
      key,
      steps: [1, 2],
      values: [value, value],
    });
    server.use(
      http.get("*/api/v1/runs/:id/metrics", () =>
        HttpResponse.json({
          ...metrics,
          series: [
            phase("pretrain", "pretrain_loss", 2),
            phase("pretrain", "samples_per_s", 90_000),
            phase(null, "loss", 1),
            phase(null, "samples_per_s", 3),
          ],
        }),
      ),
    );
    renderApp(`${FINISHED}?tab=training`);
    const pretraining = await screen.findByRole("region", { name: "sage, pretraining" });
    const panel = (name: string) => screen.getByRole("region", { name });
    expect(pretraining).toContainElement(panel("sage, pretraining samples_per_s"));
    expect(panel("sage, pretraining samples_per_s")).toHaveTextContent("90,000");
    expect(panel("sage samples_per_s")).toHaveTextContent("3at step 2");
    expect(pretraining).not.toContainElement(panel("sage samples_per_s"));
  });

  it("shows the resolved run file", async () => {
    const { user } = renderApp(FINISHED);
    await user.click(await screen.findByRole("tab", { name: "Config" }));
    expect(await screen.findByText(/kind: recommend/)).toBeInTheDocument();
  });
});

describe("a run that stopped", () => {
  it("says why, and recommends no command that would fail again", async () => {
    renderApp("/runs/shop-20261118-1");
    const alert = await screen.findByRole("alert");
    expect(alert).toHaveTextContent("expected recall@20 to drop by at most 0.02");
    expect(alert).toHaveTextContent("raise compress.max_drop");
    expect(alert).toHaveTextContent("graphbox runs rm shop-20261118-1");
    expect(alert).not.toHaveTextContent("graphbox runs resume");
  });

  it("gives the command that resumes it, once", async () => {
    server.use(
      http.get("*/api/v1/runs/:id", () =>
        HttpResponse.json({
          ...failedRun,
          state: "interrupted",
          resumable: true,
          error: {
            code: "interrupted_run",
            message: "stopped during the stage `train`",
            where: null,
            hint: `the same command, or \`graphbox runs resume ${failedRun.id}\`, goes on from there`,
          },
        }),
      ),
    );
    renderApp(`/runs/${failedRun.id}`);
    const alert = await screen.findByRole("alert");
    expect(alert).toHaveTextContent("after its last finished stage");
    expect(alert.textContent.split(`graphbox runs resume ${failedRun.id}`)).toHaveLength(2);
    expect(alert).not.toHaveTextContent("graphbox runs rm");
  });

  it("recommends nothing while another process has it", async () => {
    server.use(
      http.get("*/api/v1/runs/:id", () => HttpResponse.json({ ...failedRun, removable: false })),
    );
    renderApp(`/runs/${failedRun.id}`);
    expect(await screen.findByRole("alert")).not.toHaveTextContent("graphbox runs");
  });

  it("is told apart from a run that does not exist", async () => {
    renderApp("/runs/nothing");
    const alerts = await screen.findAllByRole("alert");
    expect(alerts[0]).toHaveTextContent("no run nothing");
    expect(alerts[0]).toHaveTextContent("did you mean debian-20261119-2?");
  });
});
