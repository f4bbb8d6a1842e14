import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { english } from "./resources-en";

/** Languages of the page, with the names their readers know them by. */
export const LANGUAGES = { en: "English", "zh-CN": "中文" } as const;
export type Language = keyof typeof LANGUAGES;

const STORAGE_KEY = "graphbox-language";

function stored(): string | null {
  try {
    return window.localStorage.getItem(STORAGE_KEY);
  } catch {
    return null; // Storage may be blocked; the browser's language is used then.
  }
}

/** Returns the language chosen before, else the first of the browser's that the page has. */
export function preferredLanguage(): Language {
  const wanted = [stored(), ...navigator.languages];
  for (const tag of wanted) {
    if (tag?.toLowerCase().startsWith("zh")) return "zh-CN";
    if (tag?.toLowerCase().startsWith("en")) return "en";
  }
  return "en";
}

async function load(language: Language): Promise<void> {
  if (language === "en" || i18next.hasResourceBundle(language, "frame")) return;
  const { chinese } = await import("./resources-zh-CN");
  for (const [namespace, texts] of Object.entries(chinese)) {
    i18next.addResourceBundle(language, namespace, texts);
  }
}

async function show(language: Language): Promise<void> {
  await load(language);
  await i18next.changeLanguage(language);
  document.documentElement.lang = language;
}

/** Switches the page to `language` and remembers it. */
export async function chooseLanguage(language: Language): Promise<void> {
  await show(language);
  try {
    window.localStorage.setItem(STORAGE_KEY, language);
  } catch {
    // Storage may be blocked; the choice holds until the page is closed.
  }
}

/** Prepares the texts of the preferred language; to be awaited before the first render. */
export async function setUpLanguages(language: Language = preferredLanguage()): Promise<void> {
  await i18next.use(initReactI18next).init({
    lng: "en",
    fallbackLng: "en",
    resources: { en: english },
    defaultNS: "frame",
    ns: Object.keys(english),
    interpolation: { escapeValue: false },
  });
  await show(language);
}
