// Writes src/api/schema.d.ts from openapi.json; with --check only says whether it is current.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";
import { format } from "prettier";

const source = new URL("../openapi.json", import.meta.url);
const target = fileURLToPath(new URL("../src/api/schema.d.ts", import.meta.url));
const header = "// Generated from openapi.json by `npm run api`. Do not edit.\n\n";

const text = await format(header + astToString(await openapiTS(source)), {
  parser: "typescript",
  printWidth: 100,
});

if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== text) {
    console.error("src/api/schema.d.ts does not match openapi.json. Run: npm run api");
    process.exit(1);
  }
  console.log("api: src/api/schema.d.ts matches openapi.json");
} else {
  writeFileSync(target, text);
}
