// Every language has the same keys (plural forms aside), no empty text, the same placeholders, and
// every key that a source file asks for literally exists.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../src", import.meta.url));
const languages = ["en", "zh-CN"];
const PLURAL = /_(zero|one|two|few|many|other)$/;
const problems = [];

function flatten(value, prefix = "") {
  return Object.entries(value).flatMap(([key, inner]) =>
    typeof inner === "string" ? [[`${prefix}${key}`, inner]] : flatten(inner, `${prefix}${key}.`),
  );
}

function load(language) {
  const folder = join(root, "i18n", language);
  const texts = new Map();
  for (const file of readdirSync(folder)) {
    const namespace = file.replace(/\.json$/, "");
    for (const [key, text] of flatten(JSON.parse(readFileSync(join(folder, file), "utf8")))) {
      const name = `${namespace}:${key.replace(PLURAL, "")}`;
      texts.set(name, [...(texts.get(name) ?? []), text]);
    }
  }
  return texts;
}

const placeholders = (texts) =>
  [...new Set(texts.join(" ").match(/\{\{[^}]+\}\}|<\/?\w+>/g) ?? [])].sort();

const [reference, ...others] = languages.map((language) => [language, load(language)]);
for (const [name, texts] of reference[1]) {
  if (texts.some((text) => text.trim() === "")) problems.push(`${reference[0]}: ${name} is empty`);
}
for (const [language, texts] of others) {
  for (const [name, expected] of reference[1]) {
    const found = texts.get(name);
    if (!found) problems.push(`${language}: ${name} is missing`);
    else if (found.some((text) => text.trim() === ""))
      problems.push(`${language}: ${name} is empty`);
    else if (placeholders(found).join() !== placeholders(expected).join())
      problems.push(
        `${language}: ${name} has placeholders [${placeholders(found)}], expected [${placeholders(expected)}]`,
      );
  }
  for (const name of texts.keys()) {
    if (!reference[1].has(name)) problems.push(`${reference[0]}: ${name} is missing`);
  }
}

const sources = readdirSync(root, { recursive: true, encoding: "utf8" })
  .filter((file) => /\.tsx?$/.test(file) && !/\.test\.tsx?$/.test(file) && !file.endsWith(".d.ts"))
  .map((file) => readFileSync(join(root, file), "utf8"))
  .join("\n");
for (const name of reference[1].keys()) {
  const [namespace, key] = name.split(":");
  const stem = key.includes(".") ? key.slice(0, key.lastIndexOf(".")) : null;
  const used =
    sources.includes(`"${namespace}:${key}"`) ||
    sources.includes(`"${key}"`) ||
    (stem !== null && sources.includes(`\`${namespace}:${stem}.\${`)) ||
    (stem !== null && sources.includes(`\`${stem}.\${`));
  if (!used) problems.push(`${name} is used nowhere`);
}

if (problems.length > 0) {
  console.error(`i18n: ${problems.length} problems\n  ${problems.join("\n  ")}`);
  process.exit(1);
}
console.log(`i18n: ${reference[1].size} texts in ${languages.join(", ")}`);
