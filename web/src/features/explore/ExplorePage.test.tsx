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

  it("asks for the node type of an id of several types, and remembers it", async () => {
    server.use(
      http.get("*/api/v1/models/:name/neighbors", ({ request }) => {
        const type = new URL(request.url).searchParams.get("type");
        if (type === null) {
          return HttpResponse.json(
            {
              code: "ambiguous_id",
              message: "the id `nginx` exists in the node types package, source",
              where: "query parameter `type`",
              hint: "choose one: `type=package` or `type=source`",
              choices: ["package", "source"],
              request_id: "0123456789abcdef",
            },
            { status: 400 },
          );
        }
        return HttpResponse.json({
          ...neighbors,
          query: { id: "nginx", type },
          query_types: ["package", "source"],
        });
      }),
    );
    const { user, router } = renderApp("/explore?id=nginx");
    const choice = await screen.findByRole("group", { name: "Node type" });
    expect(screen.getByRole("alert")).toHaveTextContent("Several node types have the id nginx.");
    await user.click(within(choice).getByRole("button", { name: "source" }));
    await waitFor(() => expect(router.state.location.search.type).toBe("source"));
    await resultRows();
    expect(screen.getByRole("radio", { name: "source" })).toBeChecked();

    const box = screen.getByRole("combobox", { name: "Id of a node" });
    await user.clear(box);
    await user.type(box, "nginx{Enter}");
    await waitFor(() => expect(router.state.location.search.type).toBe("source"));
    expect(screen.queryByRole("group", { name: "Node type" })).toBeNull();

    await user.click(screen.getByRole("radio", { name: "package" }));
    await waitFor(() => expect(router.state.location.search.type).toBe("package"));
    expect(window.localStorage.getItem("graphbox.node-type.debian-companion")).toBe("package");
  });

  it.each(["9007199254740993", "-9223372036854775808"])(
    "keeps the id %s exact from the address to the request and back",
    async (id) => {
      const asked: (string | null)[] = [];
      server.use(
        http.get("*/api/v1/models/:name/neighbors", ({ request }) => {
          asked.push(new URL(request.url).searchParams.get("id"));
          // Written by hand: numbers of JavaScript are not exact here.
          return new HttpResponse(
            `{"model": "numbers", "version": 1, "query": {"id": ${id}, "type": "item"},
              "query_types": ["item"], "neighbors": [
              {"id": ${id}, "type": "item", "score": 0.12345678901234567, "links": []}]}`,
            { headers: { "content-type": "application/json" } },
          );
        }),
      );
      const { user, router } = renderApp(`/explore?id=${id}`);
      const [row] = await resultRows();
      expect(screen.getByRole("heading", { name: `Nearest to ${id}` })).toBeInTheDocument();
      expect(row).toHaveTextContent("0.123");
      await user.click(within(row!).getByRole("link", { name: id }));
      await waitFor(() => expect(router.state.location.search.type).toBe("item"));
      expect(router.state.location.search.id).toBe(id);
      await waitFor(() => expect(asked).toEqual([id, id]));
    },
  );

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
