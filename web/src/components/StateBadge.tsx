import { Badge } from "@mantine/core";
import { useTranslation } from "react-i18next";
import classes from "./StateBadge.module.css";

const COLORS: Record<string, string> = {
  created: "gray",
  pending: "gray",
  skipped: "gray",
  running: "brand",
  finished: "teal",
  failed: "red",
  interrupted: "orange",
};

const KNOWN = [
  "created",
  "running",
  "finished",
  "failed",
  "interrupted",
  "pending",
  "skipped",
] as const;

/** The state of a run or a stage. */
export function StateBadge({ state }: { state: string }) {
  const { t } = useTranslation();
  const known = KNOWN.find((name) => name === state);
  return (
    <Badge
      color={COLORS[state] ?? "gray"}
      leftSection={<span className={classes.dot} data-state={state} />}
    >
      {known ? t(`state.${known}`) : state}
    </Badge>
  );
}
