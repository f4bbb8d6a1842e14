import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";

async function names() {
  const table = await screen.findByRole("table", { name: "Runs" });
  return within(table)
    .getAllByRole("row")
    .slice(1)
    .map((row) => within(row).getAllByRole("cell").at(-1)!.textContent);
}

describe("the list of runs", () => {
  it("shows the newest first", async () => {
    renderApp("/runs");
    expect(await names()).toEqual(["debian-20261120-1", "debian-20261119-2", "shop-20261118-1"]);
  });

  it("sorts by a column, and the address says so", async () => {
    const { user, router } = renderApp("/runs");
    await names();
    await user.click(screen.getByRole("button", { name: "Size" }));
    expect(await names()).toEqual(["debian-20261119-2", "debian-20261120-1", "shop-20261118-1"]);
    await waitFor(() => expect(router.state.location.search).toEqual({ sort: "-size" }));
    expect(screen.getByRole("columnheader", { name: "Size" })).toHaveAttribute(
      "aria-sort",
      "descending",
    );
  });

  it("filters by words of name, id and state", async () => {
    const { user } = renderApp("/runs?sort=name");
    await names();
    await user.type(
      screen.getByRole("textbox", { name: "Filter by name or id" }),
      "debian finished",
    );
    await waitFor(async () => expect(await names()).toEqual(["debian-20261119-2"]));
    await user.type(screen.getByRole("textbox"), " nothing");
    expect(
      await screen.findByText("No run matches “debian finished nothing”."),
    ).toBeInTheDocument();
    await user.click(screen.getByRole("button", { name: "Clear the filter" }));
    expect(await names()).toHaveLength(3);
  });

  it("shows the command that makes the first run", async () => {
    server.use(http.get("*/api/v1/runs", () => HttpResponse.json([])));
    renderApp("/runs");
    expect(await screen.findByText("graphbox run graphbox.yaml")).toBeInTheDocument();
  });
});
