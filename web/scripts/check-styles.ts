import type { Plugin } from "vite";

const CLASS_NAMES = /@mantine\/core\/esm\/(?:components|utils)\/.*\/(\w+)\.module\.mjs$/;
const STYLE_SHEET = /@mantine\/core\/styles\/([A-Z]\w+)\.layer\.css$/;

/**
 * Fails the build when a Mantine component is used whose style sheet is not imported. All of them
 * together would be a fifth of what the first view may weigh, so each is imported by name.
 */
export function checkStyles(): Plugin {
  return {
    name: "check-styles",
    apply: "build",
    generateBundle(_, bundle) {
      const used = Object.values(bundle).flatMap((chunk) =>
        chunk.type === "chunk"
          ? Object.entries(chunk.modules)
              .filter(([, { renderedLength }]) => renderedLength > 0)
              .flatMap(([id]) => CLASS_NAMES.exec(id)?.[1] ?? [])
          : [],
      );
      const imported = [...this.getModuleIds()].flatMap((id) => STYLE_SHEET.exec(id)?.[1] ?? []);
      const missing = used.filter((name) => !imported.includes(name));
      const unused = imported.filter((name) => !used.includes(name));
      if (missing.length + unused.length === 0) return;
      this.error(
        `src/app/component-styles.ts: expected the style sheets of the components in use; ` +
          `missing [${[...new Set(missing)]}], not needed [${unused}]`,
      );
    },
  };
}
