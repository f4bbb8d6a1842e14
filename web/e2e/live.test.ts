import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, newPage } from "./browser.ts";
import { liveRun } from "./environment.ts";
import { PrefixProxy } from "./proxy.ts";

let browser: Browser;
let proxy: PrefixProxy;
beforeAll(async () => {
  browser = await launchBrowser();
  proxy = await PrefixProxy.start("/live/");
});
afterAll(async () => {
  proxy.close();
  await browser.close();
});

/** The step that the chart of the loss has reached. */
async function lastStep(page: Page): Promise<number> {
  const text = await page
    .getByRole("region", { name: / loss$/ })
    .first()
    .innerText();
  return Number(/at step ([\d,]+)/.exec(text)![1]!.replaceAll(",", ""));
}

async function waitForStepAfter(page: Page, step: number): Promise<number> {
  await expect.poll(() => lastStep(page), { timeout: 20_000 }).toBeGreaterThan(step);
  return lastStep(page);
}

describe("a run that trains", () => {
  it("moves its charts without a reload, also after the connection was cut", async () => {
    const { page, open } = await newPage(browser, {}, proxy.address);
    await open(`/runs/${liveRun()}?tab=training`);
    await page.locator("#content").getByText("live", { exact: true }).waitFor();
    const before = await waitForStepAfter(page, await lastStep(page));
    proxy.cut();
    await page.getByText(/^reconnecting/).waitFor();
    await page.locator("#content").getByText("live", { exact: true }).waitFor();
    await waitForStepAfter(page, before);

    // Nothing was lost while the connection was: each step has its row.
    await page
      .getByRole("button", { name: /^Show as table: \S+ loss$/ })
      .first()
      .click();
    const steps = await page
      .getByRole("table", { name: /loss$/ })
      .locator("tbody tr td:first-child")
      .allInnerTexts();
    const numbers = steps.map((text) => Number(text.replaceAll(",", ""))).reverse();
    expect(numbers).toEqual(numbers.map((_, index) => numbers[0]! + index));
  });

  it("is named on the home page and counted in the navigation", async () => {
    const { page, problems, open } = await newPage(browser);
    await open("/");
    await page.getByRole("region", { name: "Recent runs" }).getByText("running").waitFor();
    await page.getByRole("navigation", { name: "Main" }).getByText("1 running").waitFor();
    expect(problems).toEqual([]);
  });
});
