import {
  type BadgeProps,
  type CardProps,
  createTheme,
  type MantineColorsTuple,
  type TableProps,
  type TooltipProps,
} from "@mantine/core";

/** A quiet indigo. Shade 7 carries white text at 7:1; shade 3 reads on the dark surfaces at 7:1. */
const brand: MantineColorsTuple = [
  "#eef0ff",
  "#dfe3ff",
  "#bfc6ff",
  "#9ea9fb",
  "#7d8af3",
  "#6472e8",
  "#5361dc",
  "#4350c3",
  "#36419f",
  "#2d377f",
];

/** Greys with a trace of blue, from text (0) to the deepest surface (9). */
const dark: MantineColorsTuple = [
  "#dcdfe7",
  "#b9becb",
  "#979daf",
  "#6c7388",
  "#434a5c",
  "#343a49",
  "#272c38",
  "#1b1f28",
  "#14171e",
  "#0e1016",
];

const SANS =
  '"Inter Variable", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans SC", system-ui, sans-serif';
const MONOSPACE =
  'ui-monospace, "SF Mono", "Cascadia Mono", "JetBrains Mono", "DejaVu Sans Mono", Menlo, Consolas, "Noto Sans Mono CJK SC", monospace';

export const theme = createTheme({
  primaryColor: "brand",
  primaryShade: { light: 7, dark: 7 },
  autoContrast: true,
  colors: { brand, dark },
  fontFamily: SANS,
  fontFamilyMonospace: MONOSPACE,
  headings: { fontFamily: SANS, fontWeight: "620" },
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.25rem" },
  defaultRadius: "sm",
  radius: { xs: "3px", sm: "6px", md: "8px", lg: "12px", xl: "20px" },
  cursorType: "pointer",
  respectReducedMotion: true,
  // Plain objects, not Component.extend: the components themselves are loaded with the routes.
  components: {
    Badge: {
      defaultProps: {
        variant: "light",
        radius: "xs",
        tt: "none",
        fw: 550,
        miw: "max-content",
      } satisfies BadgeProps,
    },
    Card: { defaultProps: { withBorder: true, padding: "md", radius: "md" } satisfies CardProps },
    Table: {
      defaultProps: { verticalSpacing: 7, horizontalSpacing: "sm" } satisfies TableProps,
    },
    Tooltip: {
      defaultProps: {
        withArrow: true,
        openDelay: 250,
        multiline: true,
      } satisfies Partial<TooltipProps>,
    },
  },
});
