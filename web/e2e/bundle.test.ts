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
