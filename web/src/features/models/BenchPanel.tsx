import { Stack, Table, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { ModelSummary, ModelVersion } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { useFormat } from "@/i18n/format";

/** Latency and throughput of requests by batch size, as measured on this machine. */
export function BenchPanel({ model, version }: { model: ModelSummary; version: ModelVersion }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  if (version.bench.length === 0) {
    return (
      <Panel title={t("bench.title")}>
        <Stack gap="xs" align="flex-start">
          <Text c="dimmed">{t("bench.none")}</Text>
          <CommandLine command={`graphbox bench ${model.name} --version ${version.version}`} />
        </Stack>
      </Panel>
    );
  }
  return (
    <Panel title={t("bench.title")} flush>
      <PlainTable label={t("bench.title")}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("bench.measured")}</Table.Th>
            <Table.Th>{t("bench.target")}</Table.Th>
            <Table.Th ta="right">{t("bench.batch")}</Table.Th>
            <Table.Th ta="right">{t("bench.p50")}</Table.Th>
            <Table.Th ta="right">{t("bench.p99")}</Table.Th>
            <Table.Th ta="right">{t("bench.throughput")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {version.bench.map((point) => (
            <Table.Tr key={`${point.operation} ${point.target} ${point.threads} ${point.batch}`}>
              <Table.Td>{t(`operation.${point.operation}`)}</Table.Td>
              <Table.Td>
                {point.target}{" "}
                <Text span size="xs" c="dimmed">
                  {t("bench.threads", { count: point.threads })}
                </Text>
              </Table.Td>
              <Table.Td ta="right">{format.integer(point.batch)}</Table.Td>
              <Table.Td ta="right">{format.milliseconds(point.p50_ms)}</Table.Td>
              <Table.Td ta="right">{format.milliseconds(point.p99_ms)}</Table.Td>
              <Table.Td ta="right">{format.integer(point.rows_per_s)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
    </Panel>
  );
}
