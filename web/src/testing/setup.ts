import "@testing-library/jest-dom/vitest";

import { cleanup, configure } from "@testing-library/react";
import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from "vitest";
import { setUpLanguages } from "@/i18n/setup";
import { FakeEventSource } from "./fake-event-source";
import { server } from "./server";

// What jsdom lacks of a browser and Mantine asks for.
window.matchMedia = (media) =>
  Object.assign(new EventTarget(), { matches: false, media, onchange: null }) as MediaQueryList;
window.ResizeObserver = class {
  observe = () => undefined;
  unobserve = () => undefined;
  disconnect = () => undefined;
};
window.scrollTo = () => undefined;
Element.prototype.scrollIntoView = () => undefined;
vi.stubGlobal("EventSource", FakeEventSource);

// jsdom draws no canvas; the charts themselves are looked at by the tests in a real browser.
vi.mock("uplot", () => ({
  default: class {
    setData = () => undefined;
    setSize = () => undefined;
    destroy = () => undefined;
  },
}));

configure({
  // Long enough for a busy machine: the first view of a page loads its code.
  asyncUtilTimeout: 10_000,
  // The message names what was looked for; the whole page after it hides that.
  getElementError: (message) => new Error(message ?? "no such element"),
});

beforeAll(async () => {
  server.listen({ onUnhandledRequest: "error" });
  await setUpLanguages("en");
});

beforeEach(() => {
  vi.spyOn(console, "error");
});

afterEach(() => {
  cleanup();
  expect(console.error).not.toHaveBeenCalled();
  server.resetHandlers();
  FakeEventSource.all.length = 0;
  window.localStorage.clear();
});

afterAll(() => server.close());
