import { Group, Table } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { requestLatency, sameRequest } from "@/api/request-latency";
import type { ModelSummary, ModelVersion } from "@/api/types";
import { Meter } from "@/components/Meter";
import { sortMetricNames } from "@/components/metric-names";
import { PlainTable } from "@/components/PlainTable";
import { TextLink } from "@/components/TextLink";
import { TimeText } from "@/components/TimeText";
import { useFormat } from "@/i18n/format";
import { Change } from "./Change";
import { compareMetrics, parentOf } from "./versions";
import { VersionBadges } from "./VersionState";
import classes from "./VersionsTable.module.css";

interface VersionsTableProps {
  model: ModelSummary;
  /** The version that is shown below the table. */
  selected?: number;
}

/** The versions of a model side by side: size, latency, quality. */
export function VersionsTable({ model, selected }: VersionsTableProps) {
  const { t } = useTranslation("models");
  const largest = Math.max(...model.versions.map(({ size_bytes }) => size_bytes));
  const deciding = model.versions.find(({ deciding_metric }) => deciding_metric)?.deciding_metric;
  const first = model.versions
    .flatMap(({ metrics }) => Object.values(metrics))
    .flatMap((values) => sortMetricNames(Object.keys(values)).metrics)
    .at(0);
  const metric = deciding ?? first;
  return (
    <PlainTable label={t("versions", { name: model.name })}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("columns.version")}</Table.Th>
          <Table.Th>{t("columns.kind")}</Table.Th>
          <Table.Th>{t("columns.precision")}</Table.Th>
          <Table.Th w="18%">{t("columns.size")}</Table.Th>
          <Table.Th ta="right">{t("columns.latency")}</Table.Th>
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
  largest: number;
  metric: string | undefined;
  selected: boolean;
}

function VersionRow({ model, version, largest, metric, selected }: VersionRowProps) {
  const format = useFormat();
  const parent = parentOf(model, version);
  const latency = requestLatency(version);
  const before = parent && requestLatency(parent);
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
          <VersionBadges model={model} version={version} />
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
      <Table.Td ta="right">
        {latency ? format.milliseconds(latency.p50_ms) : "–"}
        {latency && before && sameRequest(latency, before) && (
          <Change from={before.p50_ms} to={latency.p50_ms} lowerIsBetter />
        )}
      </Table.Td>
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

/** What a version is, in the page's language. */
export function KindName({ kind }: { kind: string }) {
  const { t } = useTranslation("models");
  return kind === "encoder" || kind === "embedding" ? t(`kind.${kind}`) : kind;
}
