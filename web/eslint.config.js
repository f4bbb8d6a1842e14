import js from "@eslint/js";
import i18next from "eslint-plugin-i18next";
import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import globals from "globals";
import tseslint from "typescript-eslint";

const FEATURES = ["home", "runs", "explore", "models", "graphs", "targets"];

/** Code goes one way: features use components, api and i18n, never each other or the app. */
const layers = [
  ...FEATURES.map((feature) => ({
    files: [`src/features/${feature}/**`],
    rules: {
      "no-restricted-imports": [
        "error",
        {
          patterns: [
            {
              regex: `^@/(app|features/(?!${feature}/))`,
              message: "A feature imports neither the app nor another feature.",
            },
          ],
        },
      ],
    },
  })),
  {
    files: ["src/components/**", "src/api/**", "src/i18n/**"],
    rules: {
      "no-restricted-imports": [
        "error",
        {
          patterns: [
            { regex: "^@/(app|features)/", message: "Shared code imports no app and no feature." },
          ],
        },
      ],
    },
  },
];

export default tseslint.config(
  { ignores: ["node_modules", "src/api/schema.d.ts", "coverage"] },
  js.configs.recommended,
  tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      globals: globals.browser,
      parserOptions: {
        projectService: true,
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      "@typescript-eslint/no-confusing-void-expression": "off",
      "@typescript-eslint/restrict-template-expressions": [
        "error",
        { allowNumber: true, allowBoolean: true, allowNullish: true, allowArray: true },
      ],
      "@typescript-eslint/no-unused-vars": [
        "error",
        { argsIgnorePattern: "^_", varsIgnorePattern: "^_", ignoreRestSiblings: true },
      ],
      eqeqeq: ["error", "always", { null: "ignore" }],
    },
  },
  {
    files: ["src/**/*.{ts,tsx}"],
    extends: [
      jsxA11y.flatConfigs.strict,
      reactHooks.configs.flat.recommended,
      i18next.configs["flat/recommended"],
    ],
  },
  {
    files: ["src/**/*.{ts,tsx}"],
    rules: {
      "i18next/no-literal-string": [
        "error",
        // The product's name and the names of percentiles are the same in every language.
        { mode: "jsx-text-only", words: { exclude: ["graphbox", "p50", "p99", "[^\\p{L}]*"] } },
      ],
    },
  },
  ...layers,
  {
    // Loops over arrays of numbers, whose bounds were checked.
    files: ["bundle/**"],
    rules: { "@typescript-eslint/no-non-null-assertion": "off" },
  },
  {
    files: ["**/*.test.{ts,tsx}", "src/testing/**", "e2e/**"],
    rules: {
      "i18next/no-literal-string": "off",
      "@typescript-eslint/no-non-null-assertion": "off",
    },
  },
  {
    files: ["scripts/**/*.mjs", "public/**", "eslint.config.js"],
    extends: [tseslint.configs.disableTypeChecked],
    languageOptions: { globals: { ...globals.node, ...globals.browser } },
  },
);
