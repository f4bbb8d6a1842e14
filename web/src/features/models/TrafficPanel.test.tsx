import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { CanaryState, ShadowState } from "@/api/types";
import { models, overview } from "@/testing/fixtures";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";

const [model] = models;

const canary: CanaryState = {
  version: 1,
  percent: 12.5,
  available: true,
  unavailable_requests: 0,
};

const shadow: ShadowState = {
  version: 1,
  percent: 100,
  tolerance: 0.001,
  available: true,
  calls: 4120,
  failed: 3,
  dropped: 70,
  active_ms: 0.5,
  shadow_ms: 0.8,
  error: "expected the inputs `z`",
  outputs: [
    {
      name: "embedding",
      rows: 8240,
      different_share: 0.25,
      mean_difference: 0.0004,
      largest_difference: 0.02,
      overlap: null,
    },
    {
      name: "nearest.neighbor",
      rows: 10,
      different_share: 0.5,
      mean_difference: null,
      largest_difference: null,
      overlap: 0.93,
    },
  ],
};

/** Serves one model, whose canary and shadow requests change; returns those requests. */
function serve(traffic: { canary?: CanaryState | null; shadow?: ShadowState | null }) {
  const sent: string[] = [];
  const state: { canary: CanaryState | null; shadow: ShadowState | null } = {
    canary: null,
    shadow: null,
    ...traffic,
  };
  const path = "*/api/v1/models/debian-companion/:share";
  server.use(
    http.get("*/api/v1/models", () => HttpResponse.json([{ ...model, ...state }])),
    http.post(path, async ({ request, params }) => {
      const body = (await request.json()) as { version: number; percent: number };
      sent.push(`POST ${String(params["share"])} ${JSON.stringify(body)}`);
      if (params["share"] === "canary") state.canary = { ...canary, ...body };
      else state.shadow = { ...shadow, ...body };
      return HttpResponse.json(state);
    }),
    http.delete(path, ({ params }) => {
      sent.push(`DELETE ${String(params["share"])}`);
      if (params["share"] === "canary") state.canary = null;
      else state.shadow = null;
      return HttpResponse.json(state);
    }),
  );
  return sent;
}

describe("canaries and shadows", () => {
  it("are shown with their shares, and the differences of the shadow", async () => {
    serve({ canary, shadow });
    renderApp("/models/debian-companion?version=1");
    const panel = await screen.findByRole("region", { name: "Canary and shadow" });
    expect(panel).toHaveTextContent("CanaryVersion 1Answers12.5%The othersVersion 2");
    expect(panel).toHaveTextContent(
      "ShadowVersion 1Repeated100.0%Compared4,120Failed3Dropped70Mean execution, shadow vs active0.8 ms vs 0.5 ms",
    );
    expect(panel).toHaveTextContent("The last failure: expected the inputs z");
    const table = within(panel).getByRole("table", {
      name: "Differences between the shadow and the answers",
    });
    expect(
      within(table)
        .getAllByRole("row")
        .map(({ textContent }) => textContent),
    ).toEqual([
      "OutputRowsDiffer by more than 0.001Mean differenceLargestIds in common",
      "embedding8,24025.0%0.00040.02–",
      "nearest.neighbor1050.0%––93.0%",
    ]);
    expect(within(panel).queryByRole("alert")).toBeNull();
    const version = screen.getByRole("region", { name: /^Version 1 canary 12.5%\s*shadow$/ });
    expect(version).toHaveTextContent("Canary: it answers a share of the requests");
  });

  it("are not shown where there are none", async () => {
    serve({});
    renderApp("/models/debian-companion");
    expect(await screen.findByRole("region", { name: /^Version 2/ })).toBeInTheDocument();
    expect(screen.queryByRole("region", { name: "Canary and shadow" })).toBeNull();
  });

  it("say when they are not open", async () => {
    serve({
      canary: { ...canary, available: false, unavailable_requests: 1234 },
      shadow: { ...shadow, available: false, error: null, outputs: [] },
    });
    renderApp("/models/debian-companion");
    const panel = await screen.findByRole("region", { name: "Canary and shadow" });
    expect(
      within(panel)
        .getAllByRole("alert")
        .map(({ textContent }) => textContent),
    ).toEqual([
      "The canary is not open: the active version answers its requests, 1,234 so far.",
      "The shadow is not open: its requests are dropped.",
    ]);
  });

  it("are started with a share and ended", async () => {
    const sent = serve({});
    const { user } = renderApp("/models/debian-companion?version=1");
    const version = await screen.findByRole("region", { name: /^Version 1/ });
    const percent = await within(version).findByLabelText("Percent");
    await user.clear(percent);
    await user.type(percent, "120");
    expect(within(version).getByRole("button", { name: "Start as canary" })).toBeDisabled();
    await user.clear(percent);
    await user.type(percent, "2.5");
    await user.click(within(version).getByRole("button", { name: "Start as canary" }));
    const panel = await screen.findByRole("region", { name: "Canary and shadow" });
    await user.click(within(version).getByRole("button", { name: "Start as shadow" }));
    await user.click(await within(panel).findByRole("button", { name: "End the shadow" }));
    await user.click(await within(panel).findByRole("button", { name: "End the canary" }));
    await waitFor(() =>
      expect(screen.queryByRole("region", { name: "Canary and shadow" })).toBeNull(),
    );
    expect(sent).toEqual([
      'POST canary {"version":1,"percent":2.5}',
      'POST shadow {"version":1,"percent":2.5,"tolerance":0.0001}',
      "DELETE shadow",
      "DELETE canary",
    ]);
  });

  it("cannot be changed where the server has no token", async () => {
    serve({ canary });
    server.use(
      http.get("*/api/v1/overview", () => HttpResponse.json({ ...overview, can_promote: false })),
    );
    renderApp("/models/debian-companion?version=1");
    await screen.findByText("graphbox models promote debian-companion --version 1");
    expect(screen.queryByRole("button", { name: /canary|shadow/ })).toBeNull();
  });
});
