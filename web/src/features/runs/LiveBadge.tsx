import { Badge } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { StreamState } from "./use-run-stream";

/** Says whether what is shown follows the run. */
export function LiveBadge({ state }: { state: StreamState }) {
  const { t } = useTranslation("runs");
  const badge = (color: string, text: string) => (
    <Badge color={color} size="md">
      {text}
    </Badge>
  );
  return (
    <span role="status">
      {state.kind === "live" && badge("teal", t("live.live"))}
      {state.kind === "connecting" && badge("gray", t("live.connecting"))}
      {state.kind === "reconnecting" &&
        badge("orange", t("live.reconnecting", { attempt: state.attempt }))}
      {state.kind === "ended" && badge("gray", t("live.ended"))}
    </span>
  );
}
