import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { BROWSER, SERVER } from "./environment.ts";

const TIMEOUT_MS = 20_000;

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-quic",
];

export function launchBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: BROWSER, args: FLAGS });
}

/** A page that keeps what went wrong in it. */
export interface WatchedPage {
  page: Page;
  /** Errors and warnings of the console, failed scripts, and requests to other hosts. */
  problems: string[];
  /** Opens a route, such as `/models`. */
  open: (route: string) => Promise<void>;
}

/** Opens a page in a context of its own. */
export async function newPage(
  browser: Browser,
  options: BrowserContextOptions = {},
  server: string = SERVER,
): Promise<WatchedPage> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    locale: "en-US",
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const problems: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(server) && !url.startsWith("data:")) problems.push(`request to ${url}`);
  });
  const open = async (route: string) => {
    await page.goto(`${server}#${route}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
  };
  return { page, problems, open };
}
