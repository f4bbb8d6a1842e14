import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { ModelVersion } from "@/api/types";
import { models, overview } from "@/testing/fixtures";
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

  it("shows the target that runs a version, with the times of all that were measured", async () => {
    const { unmount } = renderApp("/models/debian-companion");
    const open = await screen.findByRole("region", { name: /^Version 2/ });
    expect(open).toHaveTextContent("onnxruntime/cpu onnxruntime 1.31.1, int8_dynamic");
    expect(open).toHaveTextContent(
      "calls with 1 and with 32 rows: onnxruntime/cpu 0.05 ms / 0.2 ms; openvino/cpu 0.4 ms / 0.6 ms",
    );
    unmount();
    renderApp("/models/debian-companion?version=1");
    const closed = await screen.findByRole("region", { name: /^Version 1/ });
    expect(closed).toHaveTextContent("Runs onnot open");
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

describe("promoting a version", () => {
  it("asks the server, and shows the switch", async () => {
    let active = 2;
    let served = 2;
    const sent: unknown[] = [];
    server.use(
      http.get("*/api/v1/models", () =>
        HttpResponse.json([
          {
            ...models[0]!,
            versions: models[0]!.versions.map((entry) => ({
              ...entry,
              active: entry.version === active,
              served: entry.version === served,
            })),
          },
        ]),
      ),
      http.post("*/api/v1/models/debian-companion/promote", async ({ request }) => {
        sent.push(await request.json());
        active = 1;
        return HttpResponse.json({ ...models[0]!.versions[1]!, active: true });
      }),
    );
    const { user } = renderApp("/models/debian-companion?version=1");
    const panel = await screen.findByRole("region", { name: /^Version 1/ });
    expect(panel).toHaveTextContent("It answers only requests that name it.");
    await user.click(await within(panel).findByRole("button", { name: "Promote version 1" }));
    await waitFor(() => expect(panel).toHaveTextContent("Active: promoted in the workspace."));
    expect(sent).toEqual([{ version: 1 }]);
    expect(await versionRow("1")).toHaveTextContent("active");
    expect(within(panel).queryByRole("button", { name: /Promote/ })).toBeNull();
    served = 1;
    await waitFor(() => expect(panel).toHaveTextContent("Served: it answers requests"));
  });

  it("shows how the version compares with the active one", async () => {
    renderApp("/models/debian-companion?version=1");
    const panel = await screen.findByRole("region", { name: /^Version 1/ });
    expect(panel).toHaveTextContent(
      "Beside version 2, the active one: recall@20 0.3510 vs 0.3495 · 24.1 MB vs 7.3 MB · " +
        "request 1.92 ms vs 1.31 ms",
    );
    expect(panel).not.toHaveTextContent("cannot be compared");
  });

  it("says why the metrics of two versions cannot be compared", async () => {
    const [second, first] = models[0]!.versions as [ModelVersion, ModelVersion];
    const comparison = { ...first.comparison!, not_comparable: "version 2 is measured by `mrr`" };
    server.use(
      http.get("*/api/v1/models", () =>
        HttpResponse.json([{ ...models[0]!, versions: [second, { ...first, comparison }] }]),
      ),
    );
    renderApp("/models/debian-companion?version=1");
    expect(await screen.findByRole("region", { name: /^Version 1/ })).toHaveTextContent(
      "The metrics cannot be compared: version 2 is measured by mrr",
    );
  });

  it("says that a server does not follow", async () => {
    server.use(
      http.get("*/api/v1/overview", () => HttpResponse.json({ ...overview, follows: false })),
    );
    renderApp("/models/debian-companion?version=1");
    expect(await screen.findByText(/it switches when it receives SIGHUP/)).toBeInTheDocument();
  });

  it("is a command where the server has no token", async () => {
    server.use(
      http.get("*/api/v1/overview", () => HttpResponse.json({ ...overview, can_promote: false })),
    );
    renderApp("/models/debian-companion?version=1");
    expect(
      await screen.findByText("graphbox models promote debian-companion --version 1"),
    ).toBeInTheDocument();
    expect(screen.queryByRole("button", { name: /Promote/ })).toBeNull();
  });

  it("says why an active version is not served", async () => {
    const [second, first] = models[0]!.versions as [ModelVersion, ModelVersion];
    server.use(
      http.get("*/api/v1/models", () =>
        HttpResponse.json([
          {
            ...models[0]!,
            versions: [
              { ...second, served: false, failure: "expected the sha256 `a`, received `b`" },
              { ...first, served: true },
            ],
          },
        ]),
      ),
    );
    renderApp("/models/debian-companion?version=2");
    const panel = await screen.findByRole("region", { name: /^Version 2/ });
    expect(within(panel).getByRole("alert")).toHaveTextContent(
      "The server cannot serve this version: expected the sha256 a, received b Version 1 keeps answering.",
    );
  });
});

describe("a model without embeddings", () => {
  it("is neither asked about ids nor explored", async () => {
    const [model] = models;
    const versions = model!.versions.map((version) => ({ ...version, kind: "tensors" }));
    server.use(http.get("*/api/v1/models", () => HttpResponse.json([{ ...model, versions }])));
    renderApp("/models/debian-companion");
    expect(await screen.findByRole("region", { name: /^Version 2/ })).toHaveTextContent("tensors");
    expect(screen.queryByRole("link", { name: "Explore neighbours" })).not.toBeInTheDocument();
    expect(screen.queryByRole("button", { name: "Send" })).not.toBeInTheDocument();
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
