import { Badge, Group, Table } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { ModelSummary, ModelVersion } from "@/api/types";
import { Meter } from "@/components/Meter";
import { sortMetricNames } from "@/components/metric-names";
import { PlainTable } from "@/components/PlainTable";
import { TextLink } from "@/components/TextLink";
import { TimeText } from "@/components/TimeText";
import { useFormat } from "@/i18n/format";
import { Change } from "./Change";
import { compareMetrics, latencyAt, measuredBatches, parentOf } from "./versions";
import classes from "./VersionsTable.module.css";

interface VersionsTableProps {
  model: ModelSummary;
  /** The version that is shown below the table. */
  selected?: number;
}

/** The versions of a model side by side: size, latency, quality. */
export function VersionsTable({ model, selected }: VersionsTableProps) {
  const { t } = useTranslation("models");
  const batches = shownBatches(measuredBatches(model.versions));
  const largest = Math.max(...model.versions.map(({ size_bytes }) => size_bytes));
  const metric = model.versions
    .flatMap(({ metrics }) => Object.values(metrics))
    .flatMap((values) => sortMetricNames(Object.keys(values)).metrics)
    .at(0);
  return (
    <PlainTable label={t("versions", { name: model.name })}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("columns.version")}</Table.Th>
          <Table.Th>{t("columns.kind")}</Table.Th>
          <Table.Th>{t("columns.precision")}</Table.Th>
          <Table.Th w="18%">{t("columns.size")}</Table.Th>
          {batches.map((batch) => (
            <Table.Th key={batch} ta="right">
              {t("columns.latency", { batch })}
            </Table.Th>
          ))}
          {metric !== undefined && <Table.Th ta="right">{metric}</Table.Th>}
          <Table.Th>{t("columns.parent")}</Table.Th>
          <Table.Th>{t("columns.created")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {model.versions.map((version) => (
          <VersionRow
            key={version.version}
            model={model}
            version={version}
            batches={batches}
            largest={largest}
            metric={metric}
            selected={version.version === selected}
          />
        ))}
      </Table.Tbody>
    </PlainTable>
  );
}

interface VersionRowProps {
  model: ModelSummary;
  version: ModelVersion;
  batches: number[];
  largest: number;
  metric: string | undefined;
  selected: boolean;
}

function VersionRow({ model, version, batches, largest, metric, selected }: VersionRowProps) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const parent = parentOf(model, version);
  const quality = compareMetrics(version, parent).find((entry) => entry.metric === metric);
  return (
    <Table.Tr data-selected={selected || undefined} className={classes.row}>
      <Table.Td>
        <Group gap="xs" wrap="nowrap">
          <TextLink
            to="/models/$name"
            params={{ name: model.name }}
            search={{ version: version.version }}
            fw={550}
            aria-current={selected || undefined}
          >
            {version.version}
          </TextLink>
          {version.served && <Badge color="teal">{t("served")}</Badge>}
          {version.active && !version.served && <Badge color="gray">{t("active")}</Badge>}
        </Group>
      </Table.Td>
      <Table.Td>
        <KindName kind={version.kind} />
      </Table.Td>
      <Table.Td>{version.precision}</Table.Td>
      <Table.Td>
        <span className={classes.size}>
          <Meter share={version.size_bytes / largest} tone="quiet" />
          <span>{format.bytes(version.size_bytes)}</span>
        </span>
        {parent && <Change from={parent.size_bytes} to={version.size_bytes} lowerIsBetter />}
      </Table.Td>
      {batches.map((batch) => {
        const point = latencyAt(version, batch);
        const before = parent && latencyAt(parent, batch);
        return (
          <Table.Td key={batch} ta="right">
            {point ? format.milliseconds(point.p50_ms) : "–"}
            {point && before && <Change from={before.p50_ms} to={point.p50_ms} lowerIsBetter />}
          </Table.Td>
        );
      })}
      {metric !== undefined && (
        <Table.Td ta="right">
          {quality?.value == null ? "–" : format.quality(quality.value)}
          {quality?.value != null && quality.parent !== null && (
            <Change from={quality.parent} to={quality.value} />
          )}
        </Table.Td>
      )}
      <Table.Td>{version.parent ?? "–"}</Table.Td>
      <Table.Td>
        <TimeText at={version.created_at} />
      </Table.Td>
    </Table.Tr>
  );
}

/** The smallest and the largest batch say most; the model's page has all. */
function shownBatches(batches: number[]): number[] {
  return [...new Set([...batches.slice(0, 1), ...batches.slice(-1)])];
}

/** What a version is, in the page's language. */
export function KindName({ kind }: { kind: string }) {
  const { t } = useTranslation("models");
  return kind === "encoder" || kind === "embedding" ? t(`kind.${kind}`) : kind;
}
