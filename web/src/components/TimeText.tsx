import { Tooltip } from "@mantine/core";
import { useFormat } from "@/i18n/format";

/** A moment as the time that has passed since; the tooltip has the date, local and UTC. */
export function TimeText({ at }: { at: string }) {
  const format = useFormat();
  const utc = new Date(at).toISOString().replace("T", " ").slice(0, 19);
  return (
    <Tooltip label={`${format.dateTime(at)} · ${utc} UTC`}>
      <time dateTime={at}>{format.ago(at)}</time>
    </Tooltip>
  );
}
