import { Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { ModelSummary, ModelVersion } from "@/api/types";
import { Facts } from "@/components/Facts";
import { TextLink } from "@/components/TextLink";
import { TimeText } from "@/components/TimeText";
import { useFormat } from "@/i18n/format";
import { parentOf } from "./versions";
import { KindName } from "./VersionsTable";

/** Properties and origin of a version. */
export function LineagePanel({ model, version }: { model: ModelSummary; version: ModelVersion }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const parent = parentOf(model, version);
  return (
    <Facts
      facts={[
        [t("lineage.kind"), <KindName key="kind" kind={version.kind} />],
        [t("lineage.task"), version.task ?? "–"],
        [t("lineage.precision"), version.precision],
        [t("lineage.size"), format.bytes(version.size_bytes)],
        [t("lineage.running"), <RunningText key="running" running={version.running} />],
        [t("lineage.created"), <TimeText key="created" at={version.created_at} />],
        [
          t("lineage.parent"),
          parent ? (
            <TextLink
              key="parent"
              to="/models/$name"
              params={{ name: model.name }}
              search={{ version: parent.version }}
            >
              {version.parent}
            </TextLink>
          ) : (
            (version.parent ?? "–")
          ),
        ],
        [
          t("lineage.run"),
          version.run_id === null ? (
            "–"
          ) : (
            <TextLink key="run" to="/runs/$runId" params={{ runId: version.run_id }} search={{}}>
              {version.run_id}
            </TextLink>
          ),
        ],
      ]}
    />
  );
}

/** The target that runs a version, and the times of all targets where the server had a choice. */
function RunningText({ running }: { running: ModelVersion["running"] }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  if (running === null) return t("lineage.notOpen");
  const measured = Object.entries(running.measured_ms);
  return (
    <>
      {running.adapter}/{running.device}{" "}
      <Text span size="xs" c="dimmed">
        {[running.runtime, running.precision].join(", ")}
      </Text>
      {measured.length > 0 && (
        <Text size="xs" c="dimmed">
          {t("lineage.calls")}{" "}
          {measured
            .map(
              ([target, times]) =>
                `${target} ${times.map((time) => format.milliseconds(time)).join(" / ")}`,
            )
            .join("; ")}
        </Text>
      )}
    </>
  );
}
