import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { encodedNode, unseenInputs } from "@/testing/fixtures";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";

const PATH = "*/api/v1/models/debian-companion/encode";

interface Sent {
  query: string;
  body: string;
}

/** Opens the page of an encoder of new nodes; returns its panel and the requests that it sends. */
async function openPanel(answer: () => Response, inputs = unseenInputs) {
  const sent: Sent[] = [];
  server.use(
    http.get(PATH, () =>
      HttpResponse.json({ model: "debian-companion", version: 2, unseen: inputs }),
    ),
    http.post(PATH, async ({ request }) => {
      sent.push({ query: new URL(request.url).search, body: await request.text() });
      return answer();
    }),
  );
  const { user } = renderApp("/models/debian-companion");
  const panel = await screen.findByRole("region", { name: "Encode a new node" });
  return { user, panel, sent };
}

const answered = () =>
  HttpResponse.json({ model: "debian-companion", version: 2, nodes: [encodedNode] });

const refused = (where: string, hint: string | null = null) =>
  HttpResponse.json(
    {
      code: "invalid_request",
      message: "expected a node of type `product`, received `13`",
      where,
      hint,
      choices: [],
      request_id: "0123456789abcdef",
    },
    { status: 400 },
  );

describe("a new node", () => {
  it("is sent as it was typed; classes, nearest nodes and embedding are shown", async () => {
    const { user, panel, sent } = await openPanel(answered);
    const staff = within(panel).getByRole("textbox", { name: "staff" });
    await user.clear(staff);
    await user.type(staff, "9007199254740995");
    await user.type(within(panel).getByLabelText("words"), "cheap{Enter}");
    const near = within(panel).getByLabelText("package__near__shop");
    await user.type(near, "nginx-c");
    // Without a layout the list counts as hidden.
    await user.click(await screen.findByRole("option", { name: "nginx-core", hidden: true }));
    await user.click(within(panel).getByRole("button", { name: "Encode" }));

    const classes = await within(panel).findByRole("table", { name: "Class" });
    const rowsOf = (table: HTMLElement) =>
      within(table)
        .getAllByRole("row")
        .slice(1)
        .map(({ textContent }) => textContent);
    expect(rowsOf(classes)).toEqual(["large80.0%", "small20.0%"]);
    const nearest = within(panel).getByRole("table", { name: "Nearest nodes of type product" });
    expect(rowsOf(nearest)).toEqual(["90071992547409953.500", "121.250"]);
    await user.click(within(panel).getByRole("button", { name: "Embedding, 2 numbers" }));
    expect(panel).toHaveTextContent("[0.25,-1]");
    expect(sent).toEqual([
      {
        query: "?k=10&linked=false&version=2",
        body:
          '{"nodes":[{"features":{"category":"books","rating":4.1,"staff":9007199254740995,' +
          '"open":true,"profile":[0,0.5,1],"words":["new","7",7,"cheap"]},"neighbors":{' +
          '"product__sold_by__shop":[11,9007199254740993],"package__near__shop":["s1","nginx-core"]}}]}',
      },
    ]);
  });

  it("may get its own neighbours back; an answer to other inputs says so", async () => {
    const { user, panel, sent } = await openPanel(answered);
    await user.click(within(panel).getByRole("button", { name: "Encode" }));
    await within(panel).findByRole("table", { name: "Class" });
    expect(panel).not.toHaveTextContent("The inputs have changed since this answer.");
    await user.click(within(panel).getByRole("switch", { name: "Without the given neighbours" }));
    expect(panel).toHaveTextContent("The inputs have changed since this answer.");
    await user.click(within(panel).getByRole("button", { name: "Encode" }));
    expect(sent.map(({ query }) => query)).toEqual([
      "?k=10&linked=false&version=2",
      "?k=10&version=2",
    ]);
  });

  it("is not ranked by a model that ranks nothing", async () => {
    const { user, panel, sent } = await openPanel(answered, {
      ...unseenInputs,
      target_type: null,
    });
    await user.click(within(panel).getByRole("button", { name: "Encode" }));
    await within(panel).findByRole("table", { name: "Class" });
    expect(within(panel).queryByRole("table", { name: /Nearest/ })).toBeNull();
    expect(within(panel).queryByRole("switch", { name: /Without/ })).toBeNull();
    expect(sent.map(({ query }) => query)).toEqual(["?version=2"]);
  });

  it("has errors beside their fields, its own before anything is sent", async () => {
    const { user, panel, sent } = await openPanel(() =>
      refused("node 0, neighbours `product__sold_by__shop`", "did you mean `12`?"),
    );
    const profile = within(panel).getByRole("textbox", { name: "profile" });
    await user.clear(profile);
    await user.type(profile, "1, 2");
    const submit = within(panel).getByRole("button", { name: "Encode" });
    await user.click(submit);
    expect(profile).toHaveAccessibleDescription(/Expected 3 numbers, received 2\./);
    expect(sent).toEqual([]);

    await user.type(profile, ", 3");
    expect(profile).not.toHaveAccessibleDescription(/Expected/);
    await user.click(submit);
    const sold = within(panel).getByLabelText("product__sold_by__shop");
    await expect.poll(() => sold.getAttribute("aria-invalid")).toBe("true");
    expect(panel).toHaveTextContent(
      "expected a node of type product, received 13. did you mean 12?",
    );
    expect(within(panel).queryByRole("alert")).toBeNull();

    await user.click(within(panel).getByRole("button", { name: "Clear" }));
    expect(panel).not.toHaveTextContent("received 13");
  });

  it("shows an error that is about no field", async () => {
    const { user, panel } = await openPanel(() => refused("query parameter `k`"));
    await user.click(within(panel).getByRole("button", { name: "Encode" }));
    expect(await within(panel).findByRole("alert")).toHaveTextContent(
      "expected a node of type product, received 13",
    );
  });
});

describe("an encoder of the nodes of its graph alone", () => {
  it("has no form for new ones", async () => {
    renderApp("/models/debian-companion");
    await screen.findByRole("button", { name: "Send" });
    expect(screen.queryByRole("region", { name: "Encode a new node" })).toBeNull();
  });
});
