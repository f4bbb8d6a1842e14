import { Badge, Group, Stack, Table, Text, Tooltip } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Compression, CompressionPoint, ModelSummary } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { TextLink } from "@/components/TextLink";
import { useFormat } from "@/i18n/format";
import { Change } from "./Change";
import { originalLatency } from "./compression";
import { PromoteButton } from "./PromoteButton";
import { VersionBadges } from "./VersionState";
import classes from "./VersionsTable.module.css";

interface ParetoTableProps {
  model: ModelSummary;
  report: Compression;
}

/** The models that none beats in size, latency and quality, with the original. */
export function ParetoTable({ model, report }: ParetoTableProps) {
  const { t } = useTranslation("models");
  const overview = api.useQuery("get", "/api/v1/overview");
  const canPromote = overview.data?.can_promote ?? false;
  const title = t("compression.points.title");
  const { points, original } = report;
  const hasOriginal = points.some(({ key }) => key === original.key);
  return (
    <Panel title={title} note={t("compression.points.note", { metric: report.metric })} flush>
      <PlainTable label={title}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("columns.version")}</Table.Th>
            <Table.Th>{t("compression.recipe")}</Table.Th>
            <Table.Th ta="right">{t("columns.size")}</Table.Th>
            <Table.Th ta="right">{report.metric}</Table.Th>
            <Table.Th ta="right">{t("bench.p50")}</Table.Th>
            <Table.Th ta="right">{t("bench.p99")}</Table.Th>
            {canPromote && <Table.Th>{t("compression.action")}</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {points.map((point) => (
            <PointRow
              key={point.key}
              model={model}
              report={report}
              point={point}
              canPromote={canPromote}
            />
          ))}
          {!hasOriginal && (
            <PointRow
              model={model}
              report={report}
              point={{ ...original, version: report.version }}
              canPromote={canPromote}
            />
          )}
        </Table.Tbody>
      </PlainTable>
      {overview.data && !canPromote && <PromotionCommand model={model} report={report} />}
    </Panel>
  );
}

interface PointRowProps extends ParetoTableProps {
  point: CompressionPoint;
  canPromote: boolean;
}

function PointRow({ model, report, point, canPromote }: PointRowProps) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const { original, metric } = report;
  const isOriginal = point.key === original.key;
  const version = model.versions.find((each) => each.version === point.version);
  const value = point.metrics[metric];
  const before = original.metrics[metric];
  const latency = isOriginal ? originalLatency(report) : point.latency;
  const isChosen = point.key === report.chosen;
  return (
    <Table.Tr data-selected={isChosen || undefined} className={classes.row}>
      <Table.Td>
        <Group gap="xs" wrap="nowrap">
          {version ? (
            <TextLink
              to="/models/$name"
              params={{ name: model.name }}
              search={{ version: version.version }}
              fw={550}
            >
              {version.version}
            </TextLink>
          ) : (
            (point.version ?? "–")
          )}
          {isChosen && (
            <Tooltip
              label={t("compression.chosenTip")}
              events={{ hover: true, focus: true, touch: true }}
            >
              <Badge variant="filled">{t("compression.chosen")}</Badge>
            </Tooltip>
          )}
          {isOriginal && <Badge color="gray">{t("compression.original")}</Badge>}
          {version && <VersionBadges model={model} version={version} />}
        </Group>
      </Table.Td>
      <Table.Td data-wrap="text">{point.name}</Table.Td>
      <Table.Td ta="right">
        {format.bytes(point.size_bytes)}
        {!isOriginal && <Change from={original.size_bytes} to={point.size_bytes} lowerIsBetter />}
      </Table.Td>
      <Table.Td ta="right">
        {value == null ? "–" : format.quality(value)}
        {point.standard_error !== null && (
          <Text span size="xs" c="dimmed">
            {` ± ${format.quality(point.standard_error)}`}
          </Text>
        )}
        {!isOriginal && value != null && before != null && <Change from={before} to={value} />}
      </Table.Td>
      <Table.Td ta="right">
        {latency ? format.milliseconds(latency.p50_ms) : "–"}
        {!isOriginal && point.latency && (
          <Change from={point.latency.original_p50_ms} to={point.latency.p50_ms} lowerIsBetter />
        )}
      </Table.Td>
      <Table.Td ta="right">
        {latency ? format.milliseconds(latency.p99_ms) : "–"}
        {!isOriginal && point.latency && (
          <Change from={point.latency.original_p99_ms} to={point.latency.p99_ms} lowerIsBetter />
        )}
      </Table.Td>
      {canPromote && (
        <Table.Td>
          {version?.promotable && !version.active && (
            <PromoteButton
              name={model.name}
              version={version.version}
              size="compact-xs"
              variant={isChosen ? "filled" : "default"}
            />
          )}
        </Table.Td>
      )}
    </Table.Tr>
  );
}

/** The command that promotes the chosen version, where the server takes no changes. */
function PromotionCommand({ model, report }: ParetoTableProps) {
  const { t } = useTranslation("models");
  const version = model.versions.find((each) => each.version === report.chosen_version);
  if (version === undefined || version.active || !version.promotable) return null;
  return (
    <Stack gap={4} align="flex-start" p="sm">
      <Text size="sm">{t("promote.command")}</Text>
      <CommandLine command={`graphbox models promote ${model.name} --version ${version.version}`} />
    </Stack>
  );
}
