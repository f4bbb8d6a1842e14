import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { neighbors } from "@/testing/fixtures";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";

/** Rows of the list of results, without its head. */
async function resultRows() {
  const table = await screen.findByRole("table", { name: "Explore" });
  return within(table).getAllByRole("row").slice(1);
}

describe("explore", () => {
  it("asks for what the address holds and lists the neighbours in their order", async () => {
    const asked: URL[] = [];
    server.use(
      http.get("*/api/v1/models/:name/neighbors", ({ request }) => {
        asked.push(new URL(request.url));
        return HttpResponse.json(neighbors);
      }),
    );
    renderApp("/explore?model=debian-companion&version=2&type=package&id=nginx&k=50");
    const rows = await resultRows();
    expect(rows).toHaveLength(neighbors.neighbors.length);
    expect(within(rows[0]!).getByRole("link")).toHaveTextContent("nginx-common");
    expect(rows[0]).toHaveTextContent("9.412");
    expect(asked).toHaveLength(1);
    expect(asked[0]!.pathname).toContain("/models/debian-companion/neighbors");
    expect(Object.fromEntries(asked[0]!.searchParams)).toEqual({
      id: "nginx",
      type: "package",
      k: "50",
      version: "2",
    });
  });

  it("marks links of the graph, and those held out from training differently", async () => {
    renderApp("/explore?id=nginx");
    const rows = await resultRows();
    const rowOf = (id: string) => rows.find((row) => row.dataset.neighbor === id)!;
    const known = rowOf("nginx-common").querySelector("[data-link=depends]");
    expect(known).not.toHaveAttribute("data-held-out");
    const heldOut = rowOf("php-fpm").querySelector("[data-link=suggests]");
    expect(heldOut).toHaveAttribute("data-held-out");
    expect(heldOut).toHaveTextContent("held out");
    expect(rowOf("apache2").querySelector("[data-link]")).toBeNull();
    expect(
      screen.getByText(
        "4 of 20 results are linked to the node in the graph. 2 of them were held out from training.",
      ),
    ).toBeInTheDocument();
  });

  it("searches a result that is clicked, with its type, and keeps the model", async () => {
    const { user, router } = renderApp("/explore?model=debian-companion&id=nginx");
    const rows = await resultRows();
    await user.click(within(rows[1]!).getByRole("link", { name: "apache2" }));
    await waitFor(() =>
      expect(router.state.location.search).toEqual({
        model: "debian-companion",
        id: "apache2",
        type: "package",
      }),
    );
  });

  it("completes an id and searches the chosen one with its type", async () => {
    const { user, router } = renderApp("/explore");
    const box = await screen.findByRole("combobox", { name: "Id of a node" });
    await user.type(box, "ngi");
    const list = await screen.findByRole("listbox", { name: "Ids that start so", hidden: true });
    const options = await within(list).findAllByRole("option", { hidden: true });
    expect(options.map((option) => option.textContent)).toEqual([
      "nginxpackage",
      "nginxsource",
      "nginx-commonpackage",
      "nginx-corepackage",
    ]);
    await user.keyboard("{ArrowDown}{ArrowDown}{Enter}");
    await waitFor(() =>
      expect(router.state.location.search).toEqual({ id: "nginx", type: "source" }),
    );
  });

  it("searches typed text with Enter, and forgets the type of the search before", async () => {
    const { user, router } = renderApp("/explore?id=nginx&type=source");
    const box = await screen.findByRole("combobox", { name: "Id of a node" });
    await user.clear(box);
    await user.type(box, "  curl {Enter}");
    await waitFor(() => expect(router.state.location.search.id).toBe("curl"));
    expect(router.state.location.search.type).toBeUndefined();
  });

  it("says in words what was wrong with an id, not in JSON", async () => {
    server.use(
      http.get("*/api/v1/models/:name/neighbors", () =>
        HttpResponse.json(
          {
            code: "not_found",
            message: "expected an id of node type `package`, received `ngnix`",
            where: "query parameter `id`",
            hint: "did you mean `nginx`?",
            request_id: "0123456789abcdef",
          },
          { status: 404 },
        ),
      ),
    );
    renderApp("/explore?id=ngnix");
    const alert = await screen.findByRole("alert");
    expect(alert).toHaveTextContent("expected an id of node type package, received ngnix");
    expect(alert).toHaveTextContent("did you mean nginx?");
    expect(alert).not.toHaveTextContent("{");
  });

  it("shows the command that makes a model where there is none", async () => {
    server.use(http.get("*/api/v1/models", () => HttpResponse.json([])));
    renderApp("/explore");
    expect(await screen.findByText("graphbox demo")).toBeInTheDocument();
  });

  it("is reached with the key / from everywhere", async () => {
    const { user, router } = renderApp("/graphs");
    await screen.findByRole("heading", { name: "Graphs" });
    await user.keyboard("/");
    await waitFor(() => expect(router.state.location.pathname).toBe("/explore"));
    const box = await screen.findByRole("combobox", { name: "Id of a node" });
    await waitFor(() => expect(box).toHaveFocus());
  });
});
