import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, newPage } from "./browser.ts";
import { ambiguousId, packageWithLinks } from "./workspace.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launchBrowser();
});
afterAll(() => browser.close());

describe("the search box", () => {
  it("finds the neighbours of a typed package and marks the true links", async () => {
    const { model, id, answer } = await packageWithLinks();
    const { page, problems, open } = await newPage(browser);
    await open(`/explore?model=${model}`);
    const box = page.getByRole("combobox", { name: "Id of a node" });
    await page.keyboard.press("/");
    await box.fill(id);
    const suggestions = page.getByRole("listbox", { name: "Ids that start so" });
    await suggestions.getByRole("option", { name: new RegExp(`^${id}\\s*package$`) }).click();
    await page.getByRole("heading", { name: `Nearest to ${id}` }).waitFor();

    const shown = await page.locator("tr[data-neighbor]").evaluateAll((rows) =>
      rows.map((row) => ({
        id: row.getAttribute("data-neighbor"),
        links: [...row.querySelectorAll("[data-link]")].map((link) => ({
          relation: link.getAttribute("data-link"),
          held_out: link.hasAttribute("data-held-out"),
        })),
      })),
    );
    expect(shown).toEqual(
      answer.neighbors.map((neighbor) => ({
        id: String(neighbor.id),
        links: neighbor.links.map(({ relation, held_out }) => ({ relation, held_out })),
      })),
    );
    expect(problems).toEqual([]);
  });

  it("goes on from a result that is clicked, and back", async () => {
    const { model, id, answer } = await packageWithLinks();
    const { page, problems, open } = await newPage(browser);
    await open(`/explore?model=${model}&type=package&id=${id}`);
    const first = String(answer.neighbors[0]!.id);
    await page.getByRole("link", { name: first, exact: true }).click();
    await page.getByRole("heading", { name: `Nearest to ${first}` }).waitFor();
    expect(page.url()).toContain(`id=${first}`);
    await page.goBack();
    await page.getByRole("heading", { name: `Nearest to ${id}` }).waitFor();
    expect(problems).toEqual([]);
  });

  it("asks for the node type of an id of several types", async () => {
    const { model, id, types } = await ambiguousId();
    const { page, open } = await newPage(browser);
    await open(`/explore?model=${model}&id=${id}`);
    const choice = page.getByRole("group", { name: "Node type" });
    await choice.getByRole("button", { name: types[1]!, exact: true }).click();
    await page.getByRole("heading", { name: `Nearest to ${id}` }).waitFor();
    expect(page.url()).toContain(`type=${types[1]}`);
    await open(`/explore?model=${model}&id=${id}`);
    await page.waitForURL(new RegExp(`type=${types[1]}`));
    await page.getByRole("heading", { name: `Nearest to ${id}` }).waitFor();
  });

  it("suggests what was meant for an id that does not exist", async () => {
    const { model } = await packageWithLinks();
    const { page, open } = await newPage(browser);
    await open(`/explore?model=${model}&type=package&id=ngnix`);
    const alert = page.getByRole("alert");
    await alert.waitFor();
    const text = await alert.innerText();
    expect(text).toContain("ngnix");
    expect(text).toContain("nginx");
    expect(text).not.toContain("{");
  });

  it("leads from the home page to the neighbours", async () => {
    const { id } = await packageWithLinks();
    const { page, problems, open } = await newPage(browser);
    await open("/");
    // Until it is there the key leads to the search of another page.
    await page.getByRole("main").getByRole("combobox").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type(id);
    await page.getByRole("option", { name: new RegExp(`^${id}\\s*package$`) }).waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: /^Nearest to/ }).waitFor();
    expect(problems).toEqual([]);
  });
});
