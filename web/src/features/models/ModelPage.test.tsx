import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";

const versionRow = async (version: string) => {
  const table = await screen.findByRole("table", { name: "Versions of debian-companion" });
  return within(table)
    .getAllByRole("row")
    .find((row) => within(row).queryByRole("link", { name: version }))!;
};

describe("models", () => {
  it("lists versions with size, latency and quality, and what compression changed", async () => {
    renderApp("/models");
    const compressed = await versionRow("2");
    expect(compressed).toHaveTextContent("served");
    expect(compressed).toHaveTextContent("7.3 MB-69.7%");
    expect(compressed).toHaveTextContent("1.31 ms-31.8%");
    expect(compressed).toHaveTextContent("0.3495-0.4%");
    expect(await versionRow("1")).toHaveTextContent("24.1 MB");
  });

  it("shows the served version of a model, and another one by its address", async () => {
    const { unmount } = renderApp("/models/debian-companion");
    expect(await screen.findByRole("region", { name: /^Version 2/ })).toBeInTheDocument();
    unmount();
    renderApp("/models/debian-companion?version=1");
    expect(await screen.findByRole("region", { name: /^Version 1/ })).toBeInTheDocument();
  });

  it("shows the quality beside that of the version before, by popularity too", async () => {
    renderApp("/models/debian-companion");
    const panel = await screen.findByRole("region", { name: "Quality" });
    expect(panel).toHaveTextContent("Task companion · 3,318 queries, 6,082 links to find");
    const rowsOf = (name: string) =>
      within(within(panel).getByRole("table", { name })).getAllByRole("row").slice(1);
    expect(rowsOf("Quality: companion").map(({ textContent }) => textContent)).toEqual([
      "recall@200.35100.3495-0.4%",
      "ndcg@200.24900.2481-0.4%",
      "mrr0.26200.2610-0.4%",
    ]);
    expect(
      rowsOf("companion: recall@20 by popularity of the target (links in training)").map(
        ({ textContent }) => textContent,
      ),
    ).toEqual(["> 504,670 links to find0.81200.81200.0%", "01,412 links to find0.03000.0310+3.3%"]);
  });

  it("gives the command that measures a version that was not measured", async () => {
    renderApp("/models/debian-section");
    expect(
      await screen.findByText("graphbox bench debian-section --version 1"),
    ).toBeInTheDocument();
  });

  it("says that a model or version does not exist", async () => {
    renderApp("/models/debian-companion?version=9");
    expect(await screen.findByRole("alert")).toHaveTextContent(
      "There is no model debian-companion/9.",
    );
  });
});

describe("the playground", () => {
  it("sends the request it shows and shows the answer", async () => {
    const sent: unknown[] = [];
    server.use(
      http.post("*/v2/models/debian-companion/versions/2/infer", async ({ request }) => {
        sent.push(await request.json());
        return HttpResponse.json({
          outputs: [{ name: "embedding", shape: [1, 2], data: [0.25, -1] }],
        });
      }),
    );
    const { user } = renderApp("/models/debian-companion");
    await user.click(await screen.findByRole("button", { name: "Send" }));
    const answer = await screen.findByRole("region", { name: "Response" });
    expect(answer).toHaveTextContent('"data": [0.25, -1]');
    expect(sent).toEqual([
      {
        inputs: [
          {
            name: "id",
            shape: [3],
            datatype: "BYTES",
            data: ["nginx", "nginx-common", "nginx-core"],
          },
        ],
        parameters: { node_type: "package" },
      },
    ]);
  });

  it("shows why a request was refused", async () => {
    server.use(
      http.post("*/v2/*", () => HttpResponse.json({ error: "no id `nginx`" }, { status: 400 })),
    );
    const { user } = renderApp("/models/debian-companion");
    await user.click(await screen.findByRole("button", { name: "Send" }));
    expect(await screen.findByText(/^400 in/)).toBeInTheDocument();
    expect(screen.getByRole("region", { name: "Response" })).toHaveTextContent("no id `nginx`");
  });
});
