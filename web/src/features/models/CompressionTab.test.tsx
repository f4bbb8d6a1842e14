import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { Compression } from "@/api/types";
import { compression } from "@/testing/compression-fixtures";
import { models, overview } from "@/testing/fixtures";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";

const ADDRESS = "/models/debian-companion?tab=compression";
const REPORT = "*/api/v1/models/debian-companion/compressions/:id";
const LIST = "*/api/v1/models/debian-companion/compressions";

const rowsOf = (table: HTMLElement) =>
  within(table)
    .getAllByRole("row")
    .slice(1)
    .map(({ textContent }) => textContent);

const pointsTable = () => screen.findByRole("table", { name: "Models that none beats" });

const answerWith = (change: Partial<Compression>) => {
  const report = { ...compression, ...change };
  server.use(
    http.get(LIST, () => HttpResponse.json([report])),
    http.get(REPORT, () => HttpResponse.json(report)),
  );
};

describe("the compression of a model", () => {
  it("shows what was chosen, and the points beside the original", async () => {
    renderApp(ADDRESS);
    expect(
      await screen.findByText(/^Version 2 \(dense int8; tables int8\) was chosen: 3.30 times/),
    ).toHaveTextContent(
      "7.3 MB instead of 24.1 MB, with recall@20 0.3495 instead of 0.3510 on the validation part. " +
        "On the test part, measured once: recall@20 0.3410.",
    );
    const table = await pointsTable();
    expect(rowsOf(table)).toEqual([
      "2chosenserveddense int8; tables int87.3 MB-69.7%0.3495 ± 0.0120-0.4%0.3 ms-40.0%0.6 ms-33.3%",
      "3dense int8; tables float1612.4 MB-48.5%0.3512 ± 0.0120+0.1%0.49 ms-2.0%0.95 ms+5.6%",
      "1originaldense float32; tables as they are24.1 MB0.3510 ± 0.01200.5 ms0.9 msPromote version 1",
    ]);
    expect(within(table).getByRole("link", { name: "2" })).toHaveAttribute(
      "href",
      expect.stringContaining("/models/debian-companion?version=2"),
    );
    expect(within(table).queryByRole("link", { name: "3" })).toBeNull(); // it was removed
    expect(screen.getByText("--max-size 13 MB")).toBeInTheDocument();
    expect(screen.getByText("--max-p50 100%")).toBeInTheDocument();
    expect(
      screen.getByText(/^A latency in percent is relative to the original/),
    ).toBeInTheDocument();
    expect(screen.getByText(compression.command)).toBeInTheDocument();
    expect(
      screen.getByRole("img", { name: /^Scatter chart of size and recall@20 of 4 models/ }),
    ).toBeInTheDocument();
  });

  it("is a tab of the model's page, kept in its address", async () => {
    const { user, router } = renderApp("/models/debian-companion?version=1");
    await user.click(await screen.findByRole("tab", { name: "Compression" }));
    await pointsTable();
    expect(router.state.location.search).toEqual({ version: 1, tab: "compression" });
    await user.click(screen.getByRole("tab", { name: "Version" }));
    expect(await screen.findByRole("region", { name: /^Version 1/ })).toBeInTheDocument();
    expect(router.state.location.search).toEqual({ version: 1 });
  });

  it("says on demand what was tried, and why it was not taken", async () => {
    const [original] = compression.tried;
    answerWith({ rejected: [{ ...original!, exceeds: ["--max-p99"] }] });
    const { user } = renderApp(ADDRESS);
    await user.click(await screen.findByRole("button", { name: "All 5 models that were tried" }));
    expect(rowsOf(await screen.findByRole("table", { name: "Models that were tried" }))).toEqual([
      expect.stringMatching(/0\.3510.*beyond --max-p99 when it was measured again$/),
      expect.stringMatching(/^dense int8; tables int8.*0\.7 ms2 ms$/),
      expect.stringMatching(/^dense int8; tables float16/),
      expect.stringMatching(/^dense int8; tables int44\.1 MB0\.3100.*--max-drop$/),
      "dense int8; tables int3––––expected rows of 8 or more elements, received 4",
    ]);
  });

  it("shows the metric by popularity of the targets, original beside chosen", async () => {
    renderApp(ADDRESS);
    const table = await screen.findByRole("table", {
      name: "recall@20 by popularity of the target (links in training)",
    });
    expect(rowsOf(table)).toEqual([
      "> 501,204 links to find0.41200.4135+0.4%",
      "5–502,870 links to find0.35300.3510-0.6%",
      "01 link to find0.0000–",
    ]);
  });

  it("has no such table where a task does not measure it", async () => {
    answerWith({ drift: [] });
    renderApp(ADDRESS);
    await pointsTable();
    expect(screen.queryByRole("table", { name: /by popularity/ })).toBeNull();
  });

  it("marks the codec that each table of the chosen version has", async () => {
    const { user } = renderApp(ADDRESS);
    const title = "Relative error of the tables by codec";
    await user.click(await screen.findByRole("button", { name: title }));
    expect(rowsOf(await screen.findByRole("table", { name: title }))).toEqual([
      "float320.0%0.0%chosen",
      "int80.5%chosen0.5%",
      "int48.6%–",
    ]);
  });

  it("promotes a point, where the server takes changes", async () => {
    const sent: unknown[] = [];
    server.use(
      http.post("*/api/v1/models/debian-companion/promote", async ({ request }) => {
        sent.push(await request.json());
        return HttpResponse.json({ ...models[0]!.versions[1]!, active: true });
      }),
    );
    const { user } = renderApp(ADDRESS);
    const table = await pointsTable();
    await user.click(await within(table).findByRole("button", { name: "Promote version 1" }));
    await expect.poll(() => sent).toEqual([{ version: 1 }]);
    expect(within(table).queryByRole("button", { name: "Promote version 2" })).toBeNull();
  });

  it("gives the command that promotes the chosen version, where it does not", async () => {
    const [second, first] = models[0]!.versions;
    server.use(
      http.get("*/api/v1/overview", () => HttpResponse.json({ ...overview, can_promote: false })),
      http.get("*/api/v1/models", () =>
        HttpResponse.json([
          {
            ...models[0]!,
            versions: [
              { ...second!, active: false, served: false },
              { ...first!, active: true, served: true },
            ],
          },
        ]),
      ),
    );
    renderApp(ADDRESS);
    expect(
      await screen.findByText("graphbox models promote debian-companion --version 2"),
    ).toBeInTheDocument();
    expect(screen.queryByRole("button", { name: /Promote/ })).toBeNull();
  });

  it("says how to start a search where there is none", async () => {
    renderApp("/models/debian-section?tab=compression");
    expect(await screen.findByRole("heading", { name: "No search yet" })).toBeInTheDocument();
    expect(
      screen.getByText("graphbox compress debian-section --max-drop 0.5% --trials 20"),
    ).toBeInTheDocument();
  });

  it("says that a search runs, was interrupted, or found nothing", async () => {
    const unfinished = {
      trials: 3,
      limits: ["--max-size 1000B"],
      command: "graphbox compress debian-companion --max-size 1kB",
      failure: null,
    };
    const nothing = { state: "unfinished" as const, points: [], chosen: null, metrics_test: {} };
    answerWith({ ...nothing, running: true, unfinished });
    const running = renderApp(ADDRESS);
    expect(await screen.findByText("The search runs: 3 models tried so far.")).toBeInTheDocument();
    expect(screen.queryByRole("table", { name: "Models that none beats" })).toBeNull();
    running.unmount();
    answerWith({ ...nothing, unfinished });
    const interrupted = renderApp(ADDRESS);
    expect(await screen.findByText("Not finished: 3 models tried so far")).toBeInTheDocument();
    expect(screen.getByText(unfinished.command)).toBeInTheDocument();
    interrupted.unmount();
    answerWith({ state: "unfinished", unfinished: { ...unfinished, failure: "none of 3 is" } });
    renderApp(ADDRESS);
    expect(await screen.findByText("none of 3 is")).toBeInTheDocument();
    expect(screen.getByText(/figures below are those of the search before/)).toBeInTheDocument();
  });

  it("lets one of several searches be chosen, which the address keeps", async () => {
    const other = { ...compression, id: "1-ba9876543210", key: "ba9876543210", trials: 9 };
    server.use(http.get(LIST, () => HttpResponse.json([compression, other])));
    const { user, router } = renderApp(ADDRESS);
    const choice = await screen.findByRole("combobox", { name: "Search" });
    expect(choice).toHaveValue(compression.id);
    server.use(http.get(REPORT, () => HttpResponse.json(other)));
    await user.selectOptions(choice, other.id);
    await expect
      .poll(() => router.state.location.search)
      .toEqual({ tab: "compression", search: other.id });
    expect(choice).toHaveValue(other.id);
  });

  it("says that a search is not there", async () => {
    renderApp(`${ADDRESS}&search=1-ffffffffffff`);
    expect(await screen.findByRole("alert")).toHaveTextContent("no search 1-ffffffffffff");
  });
});
