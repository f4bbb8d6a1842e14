import { Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { RunReport } from "@/api/types";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { TextLink } from "@/components/TextLink";
import { useFormat } from "@/i18n/format";
import { fieldLabel, fieldValue } from "@/components/field-text";
import { useOperationName } from "@/components/use-operation-name";
import { benchRows, type Comparison, comparisons, exportRows } from "./reports";

/** Measures that every compression reports; any other is the task's metric, which keeps its name. */
const MEASURES = { size_bytes: "report.size_bytes" } as const;

function isMeasure(name: string): name is keyof typeof MEASURES {
  return name in MEASURES;
}

/** What the stages after training measured. */
export function StageReports({ report }: { report: RunReport }) {
  return (
    <>
      <CompressPanel rows={comparisons(report.compress)} />
      <ExportPanel report={report.export} />
      <BenchPanel report={report.bench} />
    </>
  );
}

interface StagePanelProps {
  title: string;
  empty: boolean;
  children: ReactNode;
}

function StagePanel({ title, empty, children }: StagePanelProps) {
  const { t } = useTranslation("runs");
  if (!empty) {
    return (
      <Panel title={title} flush>
        {children}
      </Panel>
    );
  }
  return (
    <Panel title={title}>
      <Text c="dimmed">{t("report.none")}</Text>
    </Panel>
  );
}

function CompressPanel({ rows }: { rows: Comparison[] }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  return (
    <StagePanel title={t("report.compress")} empty={rows.length === 0}>
      <PlainTable label={t("report.compress")}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("report.model")}</Table.Th>
            <Table.Th>{t("report.measure")}</Table.Th>
            <Table.Th ta="right">{t("report.before")}</Table.Th>
            <Table.Th ta="right">{t("report.after")}</Table.Th>
            <Table.Th ta="right">{t("report.change")}</Table.Th>
            <Table.Th ta="right">{t("report.limit")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map(({ artifact, name, before, after, max_drop }) => (
            <Table.Tr key={`${artifact} ${name}`}>
              <Table.Td>
                <TextLink to="/models/$name" params={{ name: artifact }} search={{}}>
                  {artifact}
                </TextLink>
              </Table.Td>
              <Table.Td>{isMeasure(name) ? t(MEASURES[name]) : fieldLabel(name)}</Table.Td>
              {[before, after].map((value, index) => (
                <Table.Td key={index} ta="right">
                  {max_drop === null ? fieldValue({ name, value }, format) : format.quality(value)}
                </Table.Td>
              ))}
              <Table.Td ta="right">
                {before === 0 ? "–" : format.signedPercent((after - before) / Math.abs(before))}
              </Table.Td>
              <Table.Td ta="right">
                {max_drop === null ? "–" : t("report.drop", { drop: format.number(max_drop) })}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
    </StagePanel>
  );
}

function ExportPanel({ report }: { report: RunReport["export"] }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const rows = exportRows(report);
  const error = (value: number | null) => (value === null ? "–" : format.number(value));
  return (
    <StagePanel title={t("report.export")} empty={rows.length === 0}>
      <PlainTable label={t("report.export")}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("report.model")}</Table.Th>
            <Table.Th ta="right">{t("columns.size")}</Table.Th>
            <Table.Th ta="right">{t("report.absoluteError")}</Table.Th>
            <Table.Th ta="right">{t("report.relativeError")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={row.name}>
              <Table.Td>
                <VersionLink name={row.name} version={row.version} />
              </Table.Td>
              <Table.Td ta="right">
                {row.size_bytes === null ? "–" : format.bytes(row.size_bytes)}
              </Table.Td>
              <Table.Td ta="right">{error(row.max_absolute_error)}</Table.Td>
              <Table.Td ta="right">{error(row.max_relative_error)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
    </StagePanel>
  );
}

function BenchPanel({ report }: { report: RunReport["bench"] }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const rows = benchRows(report);
  const operation = useOperationName();
  return (
    <StagePanel title={t("report.bench")} empty={rows.length === 0}>
      <PlainTable label={t("report.bench")} verticalSpacing={4}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("report.model")}</Table.Th>
            <Table.Th>{t("report.measured")}</Table.Th>
            <Table.Th ta="right">{t("report.batch")}</Table.Th>
            <Table.Th ta="right">p50</Table.Th>
            <Table.Th ta="right">p99</Table.Th>
            <Table.Th ta="right">{t("report.throughput")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={`${row.name} ${row.version} ${row.operation} ${row.batch}`}>
              <Table.Td>
                <VersionLink name={row.name} version={row.version} />{" "}
                <Text span size="xs" c="dimmed">
                  {row.precision}
                </Text>
              </Table.Td>
              <Table.Td>{operation(row.operation)}</Table.Td>
              <Table.Td ta="right">{format.integer(row.batch)}</Table.Td>
              <Table.Td ta="right">{format.milliseconds(row.p50_ms)}</Table.Td>
              <Table.Td ta="right">{format.milliseconds(row.p99_ms)}</Table.Td>
              <Table.Td ta="right">{format.integer(row.rows_per_s)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
    </StagePanel>
  );
}

function VersionLink({ name, version }: { name: string; version: number | null }) {
  return (
    <TextLink to="/models/$name" params={{ name }} search={version === null ? {} : { version }}>
      {version === null ? name : `${name} ${version}`}
    </TextLink>
  );
}
