import { readFileSync } from "node:fs";
import { join } from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, newPage } from "./browser.ts";
import { bundleAnswers, SCREENSHOTS, SERVER } from "./environment.ts";

/** What Python answers for the bundles below the server's address. */
interface Expected {
  encoders: {
    bundle: string;
    type: string;
    target: string;
    tolerance: number;
    queries: { id: string; neighbors: [string, number][]; classes: [string, number][] }[];
  }[];
  clicks: {
    bundle: string;
    columns: { name: string; kind: string }[];
    tolerance: number;
    labels: string[];
    queries: { values: string[]; probabilities: number[]; unseen: string[] }[];
  }[];
  graphs: {
    bundle: string;
    tolerance: number;
    queries: {
      relation: string;
      asked: "head" | "tail";
      id: string;
      k: number;
      known: boolean;
      answers: [string, number, boolean][];
    }[];
  }[];
  tensors: { bundle: string; outputs: { title: string; values: number[] }[]; tolerance: number }[];
}

const expected = JSON.parse(readFileSync(bundleAnswers(), "utf8")) as Expected;

let browser: Browser;
beforeAll(async () => {
  browser = await launchBrowser();
});
afterAll(() => browser.close());

async function openBundle(path: string, options = {}) {
  const { page, problems } = await newPage(browser, options);
  await page.context().route(
    (url) => !url.href.startsWith(SERVER),
    (route) => route.abort(),
  );
  await page.goto(SERVER + path);
  await page.locator("form").waitFor();
  return { page, problems };
}

/** Rows of a table: the text of the first cells, and the exact number in the last one. */
const rowsOf = (page: Page, heading: string) =>
  page
    .getByRole("heading", { name: heading, exact: true })
    .locator("xpath=following-sibling::table[1]/tbody/tr")
    .evaluateAll((rows) =>
      rows.map((row): [string, number] => [
        row.querySelector("td:nth-last-child(2)")!.textContent,
        Number(row.querySelector("data")!.value),
      ]),
    );

function expectClose(found: [string, number][], wanted: [string, number][], tolerance: number) {
  expect(found.map(([name]) => name)).toEqual(wanted.map(([name]) => name));
  found.forEach(([, score], i) => {
    expect(Math.abs(score - wanted[i]![1])).toBeLessThan(tolerance);
  });
}

/** Asks by the address of the page, as a link does; no two addresses are alike. */
const ask = (page: Page, values: Record<string, string>, number: number) =>
  page.evaluate(
    (address) => {
      document.querySelector("section")!.replaceChildren();
      window.location.hash = address;
    },
    new URLSearchParams({ ...values, number: String(number) }).toString(),
  );

/** Checks accessibility, and leaves a picture. */
async function look(page: Page, name: string): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).setLegacyMode().analyze();
  expect(violations).toEqual([]);
  if (SCREENSHOTS) {
    await page.screenshot({ path: join(SCREENSHOTS, `bundle-${name}.png`), fullPage: true });
  }
}

describe.each(expected.encoders)("the bundle $bundle, type $type", (given) => {
  const { bundle, type, target, tolerance, queries } = given;

  it("answers as Python does", async () => {
    const { page, problems } = await openBundle(`${bundle}/`);
    const types = page.getByLabel("Type");
    if (await types.count()) await types.selectOption(type);
    for (const { id, neighbors, classes } of queries) {
      await page.getByLabel("Id").fill(id);
      await page.getByRole("button", { name: "Find" }).click();
      if (neighbors.length > 0) {
        const heading = `Nearest ${target} of ${id}`;
        await page.getByRole("heading", { name: heading, exact: true }).waitFor();
        expectClose(await rowsOf(page, heading), neighbors, tolerance);
      }
      if (classes.length > 0) {
        const heading = `Classes of ${id}`;
        await page.getByRole("heading", { name: heading, exact: true }).waitFor();
        expectClose(await rowsOf(page, heading), classes, tolerance);
      }
    }
    await look(page, bundle);
    expect(problems).toEqual([]);
    await page.context().close();
  });

  it("answers what its address asks for, and names ids that are not there", async () => {
    const { id } = queries[0]!;
    const asked = new URLSearchParams({ type, id });
    const { page, problems } = await openBundle(`${bundle}/index.html#${asked}`, {
      locale: "zh-CN",
      colorScheme: "dark",
    });
    await page.getByRole("heading", { level: 2 }).first().waitFor();
    expect(await page.locator("html").getAttribute("lang")).toBe("zh-CN");
    await look(page, `${bundle}-zh`);
    await page.getByRole("button", { name: "English" }).click();
    await page.getByLabel("Id").fill("<b>absent</b>");
    await page.getByRole("button", { name: "Find" }).click();
    const alert = page.getByRole("alert");
    await alert.waitFor();
    expect(await alert.innerText()).toBe(`There is no ${type} with the id “<b>absent</b>”.`);
    await look(page, `${bundle}-absent`);
    expect(problems).toEqual([]);
    await page.context().close();
  });
});

describe.each(expected.clicks)("the bundle $bundle", (clicks) => {
  const { bundle, columns, labels, tolerance, queries } = clicks;
  const expectProbabilities = async (page: Page, probabilities: number[]) => {
    const results = page.locator("section data");
    await results.first().waitFor();
    const found = await results.evaluateAll((each) =>
      each.map((data) => data.getAttribute("value")),
    );
    expect(found.length).toBe(probabilities.length);
    for (const [i, probability] of probabilities.entries())
      expect(Math.abs(Number(found[i]) - probability)).toBeLessThan(tolerance);
    expect(await page.locator("section tbody td:first-child").allInnerTexts()).toEqual(labels);
  };
  const write = async (page: Page, values: string[]) => {
    for (const [i, { name, kind }] of columns.entries()) {
      const input = page.locator(`[name="${name}"]`);
      await (kind === "boolean" ? input.selectOption(values[i]!) : input.fill(values[i]!));
    }
    await page.getByRole("button", { name: "Predict" }).click();
  };

  it("answers as Python does", async () => {
    const { page, problems } = await openBundle(`${bundle}/`);
    await page.locator("section data").first().waitFor(); // that of the example
    for (const [number, { values, probabilities, unseen }] of queries.entries()) {
      await ask(page, Object.fromEntries(columns.map(({ name }, i) => [name, values[i]!])), number);
      await expectProbabilities(page, probabilities);
      const told = await page.locator("section").innerText();
      const columnsTold = /was learnt, so they add nothing: (.*)\.$/m.exec(told)?.[1] ?? "";
      expect(columnsTold).toBe(unseen.join(", "));
    }
    await look(page, bundle);
    expect(problems).toEqual([]);
    await page.context().close();
  });

  it("answers the row of its address, and names a column that it cannot read", async () => {
    const { values, probabilities } = queries[0]!;
    const asked = new URLSearchParams(columns.map(({ name }, i) => [name, values[i]!]));
    const { page, problems } = await openBundle(`${bundle}/index.html#${asked}`, {
      locale: "zh-CN",
      colorScheme: "dark",
    });
    await page.getByRole("heading", { name: "概率" }).waitFor();
    await expectProbabilities(page, probabilities);
    await look(page, `${bundle}-zh`);
    await page.getByRole("button", { name: "English" }).click();
    const number = columns.findIndex(({ kind }) => kind === "number");
    await write(page, values.with(number, "<b>7</b>"));
    const alert = page.getByRole("alert");
    await alert.waitFor();
    expect(await alert.innerText()).toBe(
      `${columns[number]!.name}: expected a number, or nothing, received “<b>7</b>”.`,
    );
    await look(page, `${bundle}-wrong`);
    expect(problems).toEqual([]);
    await page.context().close();
  });
});

describe.each(expected.graphs)("the bundle $bundle", ({ bundle, tolerance, queries }) => {
  it("answers as Python does", async () => {
    const { page, problems } = await openBundle(`${bundle}/`);
    for (const [number, { relation, asked, id, k, known, answers }] of queries.entries()) {
      const question = { relation, asked, id, k: String(k) };
      await ask(page, known ? { ...question, known: "1" } : question, number);
      const heading = asked === "head" ? `? — ${relation} → ${id}` : `${id} — ${relation} → ?`;
      await page.getByRole("heading", { name: heading, exact: true }).waitFor();
      const rows = await page.locator("section tbody tr").evaluateAll((found) =>
        found.map((row) => ({
          cells: Array.from(row.querySelectorAll("td"), (cell) => cell.textContent),
          score: Number(row.querySelector("data")!.value),
        })),
      );
      expect(rows.map(({ cells }) => cells[1])).toEqual(answers.map(([name]) => name));
      rows.forEach(({ score }, i) => {
        expect(Math.abs(score - answers[i]![1])).toBeLessThan(
          tolerance * Math.max(1, Math.abs(score)),
        );
      });
      if (known) {
        const told = rows.map(({ cells }) => cells[2] === "yes");
        expect(told).toEqual(answers.map(([, , isKnown]) => isKnown));
      }
    }
    await look(page, bundle);
    expect(problems).toEqual([]);
    await page.context().close();
  });

  it("answers what its address asks for, and names ids that are not there", async () => {
    const { relation, asked, id, k, known, answers } = queries[0]!;
    const address = new URLSearchParams({ relation, asked, id, k: String(k), known: "1" });
    const { page, problems } = await openBundle(`${bundle}/index.html#${address}`, {
      locale: "zh-CN",
      colorScheme: "dark",
    });
    await page.getByRole("heading", { level: 2 }).first().waitFor();
    await look(page, `${bundle}-zh`);
    await page.getByRole("button", { name: "English" }).click();
    expect(await page.getByLabel("Known links too").isChecked()).toBe(true);
    await page.getByLabel("Id (").fill("<b>absent</b>");
    await page.getByRole("button", { name: "Find" }).click();
    const alert = page.getByRole("alert");
    await alert.waitFor();
    expect(await alert.innerText()).toContain("with the id “<b>absent</b>”.");
    await page.getByLabel("Relation").selectOption(relation);
    await page.getByLabel("Find").selectOption(asked);
    await page.getByLabel("Id (").fill(id);
    await page.getByLabel("Answers").fill(String(k));
    await page.getByLabel("Known links too").setChecked(known);
    await page.getByRole("button", { name: "Find" }).click();
    await page.getByRole("heading", { level: 2 }).waitFor();
    expect(await page.locator("section tbody tr").count()).toBe(answers.length);
    expect(problems).toEqual([]);
    await page.context().close();
  });
});

describe.each(expected.tensors)("the bundle $bundle", ({ bundle, outputs, tolerance }) => {
  it("runs its example, and refuses inputs that do not fit", async () => {
    const { page, problems } = await openBundle(`${bundle}/`);
    for (const { title, values } of outputs) {
      const heading = page.getByRole("heading", { name: title, exact: true });
      await heading.waitFor();
      const shown = await heading.locator("xpath=following-sibling::pre[1]").innerText();
      const found = shown.split(", ").map(Number);
      expect(found).toHaveLength(values.length);
      found.forEach((value, i) => {
        expect(Math.abs(value - values[i]!)).toBeLessThan(tolerance);
      });
    }
    await look(page, bundle);
    await page.getByRole("textbox").fill("[]");
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByRole("alert").getByText("expected").waitFor();
    expect(problems).toEqual([]);
    await page.context().close();
  });
});
