import { join } from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, newPage } from "./browser.ts";
import { SCREENSHOTS, unseenModel } from "./environment.ts";

const LANGUAGES = [
  { locale: "en-US", title: "Encode a new node", submit: "Encode" },
  { locale: "zh-CN", title: "编码新节点", submit: "编码" },
];

let browser: Browser;
beforeAll(async () => {
  browser = await launchBrowser();
});
afterAll(() => browser.close());

describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
  it.each(LANGUAGES)(
    "a new node gets its nearest nodes ($locale)",
    async ({ locale, title, submit }) => {
      const { page, problems, open } = await newPage(browser, { colorScheme, locale });
      await open(`/models/${unseenModel()}`);
      const panel = page.getByRole("region", { name: title });
      await panel.getByRole("button", { name: submit, exact: true }).click();
      await panel.getByRole("status").getByRole("row").nth(10).waitFor();
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(violations).toEqual([]);
      if (SCREENSHOTS) {
        const path = join(SCREENSHOTS, `encode-${colorScheme}-${locale}.png`);
        await page.screenshot({ path, fullPage: true });
      }
      expect(problems).toEqual([]);
      await page.context().close();
    },
  );
});

describe("the neighbours of a new node", () => {
  it("are offered by what their ids start with; an unknown one is named beside its field", async () => {
    const { page, open } = await newPage(browser);
    await open(`/models/${unseenModel()}`);
    const panel = page.getByRole("region", { name: "Encode a new node" });
    const field = panel.getByLabel("item__bought_by__user");
    await field.fill("i5");
    await page.getByRole("option", { name: "i59", exact: true }).click();
    await panel.getByText("i59", { exact: true }).waitFor();
    await field.fill("nothing");
    await field.press("Enter");
    await panel.getByRole("button", { name: "Encode", exact: true }).click();
    await panel.getByText(/expected the id of a node of type/).waitFor();
    expect(await field.getAttribute("aria-invalid")).toBe("true");
    expect(await panel.getByRole("alert").count()).toBe(0);
    await page.context().close();
  });
});
