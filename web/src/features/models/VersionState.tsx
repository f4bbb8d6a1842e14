import { Badge, Stack, Text, Tooltip } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { ModelSummary, ModelVersion, VersionComparison } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { Prose } from "@/components/Prose";
import { useFormat } from "@/i18n/format";
import { PromoteButton } from "./PromoteButton";
import { TrafficControls } from "./TrafficControls";

const TOUCH_TOO = { hover: true, focus: true, touch: true };

/** Badges for versions that answer by default, are to do so, or get a share of the requests. */
export function VersionBadges({ model, version }: VersionStateProps) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const { canary, shadow } = model;
  const switching = version.active && !version.served;
  return (
    <>
      {version.served && (
        <Tooltip label={t("servedText")} events={TOUCH_TOO}>
          <Badge color="teal">{t("served")}</Badge>
        </Tooltip>
      )}
      {switching && (
        <Tooltip label={t("activeText")} events={TOUCH_TOO}>
          <Badge color={version.failure === null ? "gray" : "red"}>{t("active")}</Badge>
        </Tooltip>
      )}
      {canary?.version === version.version && (
        <Tooltip label={t("traffic.canaryText")} events={TOUCH_TOO}>
          <Badge color={canary.available ? "orange" : "red"}>
            {t("traffic.canary")} {format.percent(canary.percent / 100)}
          </Badge>
        </Tooltip>
      )}
      {shadow?.version === version.version && (
        <Tooltip label={t("traffic.shadowText")} events={TOUCH_TOO}>
          <Badge color={shadow.available ? "violet" : "red"}>{t("traffic.shadow")}</Badge>
        </Tooltip>
      )}
    </>
  );
}

interface VersionStateProps {
  model: ModelSummary;
  version: ModelVersion;
}

/** Which requests a version answers, and how it becomes the one that answers by default. */
export function VersionState({ model, version }: VersionStateProps) {
  const { t } = useTranslation("models");
  const answering = model.versions.find(({ served }) => served)?.version;
  const { active, served, failure } = version;
  const isCanary = model.canary?.version === version.version;
  return (
    <Stack gap="xs" align="flex-start" mt="md">
      {served && <Text size="sm">{t("servedText")}</Text>}
      {active && !served && <Text size="sm">{t("activeText")}</Text>}
      {served && !active && version.promotable && <Text size="sm">{t("promote.replaced")}</Text>}
      {!active && !served && (
        <Text size="sm">{t(isCanary ? "traffic.canaryText" : "promote.named")}</Text>
      )}
      {version.comparison && <ComparisonText comparison={version.comparison} />}
      {failure !== null && (
        <Text size="sm" c="red" role="alert">
          {t("promote.failed")} <Prose text={failure} />
          {!served && answering !== undefined && ` ${t("promote.stays", { version: answering })}`}
        </Text>
      )}
      {!active && <Promotion name={model.name} version={version} />}
    </Stack>
  );
}

/** The figures of a version against those of the active one. */
function ComparisonText({ comparison }: { comparison: VersionComparison }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const { metric, quality, size_bytes, request, request_ms } = comparison;
  const pair = (figures: typeof quality, text: (value: number) => string) =>
    t("compare.pair", {
      version: figures.version === null ? "–" : text(figures.version),
      active: figures.active === null ? "–" : text(figures.active),
    });
  const figures = [
    metric &&
      quality.version !== null &&
      `${metric} ${pair(quality, (value) => format.quality(value))}`,
    pair(size_bytes, (value) => format.bytes(value)),
    request && `${t("compare.request")} ${pair(request_ms, (value) => format.milliseconds(value))}`,
  ];
  return (
    <>
      <Text size="sm">
        {t("compare.title", { version: comparison.active })} {figures.filter(Boolean).join(" · ")}
      </Text>
      {comparison.not_comparable !== null && (
        <Text size="sm" c="dimmed">
          {t("compare.notComparable")} <Prose text={comparison.not_comparable} />
        </Text>
      )}
    </>
  );
}

/** The button that promotes a version, or the command where the server takes no changes. */
function Promotion({ name, version }: { name: string; version: ModelVersion }) {
  const { t } = useTranslation("models");
  const overview = api.useQuery("get", "/api/v1/overview");
  if (!version.promotable) return <Text size="sm">{t("promote.folder")}</Text>;
  const waits = overview.data?.follows === false && (
    <Text size="sm">{t("promote.notFollowing")}</Text>
  );
  if (overview.data?.can_promote === undefined) return null;
  if (!overview.data.can_promote) {
    return (
      <>
        <Text size="sm">{t("promote.command")}</Text>
        <CommandLine command={`graphbox models promote ${name} --version ${version.version}`} />
        {waits}
      </>
    );
  }
  return (
    <>
      <PromoteButton name={name} version={version.version} />
      {!version.served && <TrafficControls name={name} version={version} />}
      {waits}
    </>
  );
}
