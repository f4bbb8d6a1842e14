import { Table } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { Compression, CompressionTrial } from "@/api/types";
import { Figure } from "@/components/Figure";
import { PlainTable } from "@/components/PlainTable";
import { Prose } from "@/components/Prose";
import { useFormat } from "@/i18n/format";

/** The codec of a table that stays as it is. */
const UNCHANGED = "float32";

/** Everything that was tried, in its order: figures, and why it is beyond a limit or was refused. */
export function TriedTable({ report }: { report: Compression }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const { metric } = report;
  const rejected = new Map(report.rejected.map((trial) => [trial.key, trial]));
  const remark = (trial: CompressionTrial) => {
    if (trial.state === "refused") return trial.reason ?? "";
    const again = rejected.get(trial.key);
    if (again) return t("compression.tried.again", { limits: again.exceeds.join(", ") });
    return trial.exceeds.join(", ");
  };
  return (
    <PlainTable label={t("compression.tried.label")}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("compression.recipe")}</Table.Th>
          <Table.Th ta="right">{t("columns.size")}</Table.Th>
          <Table.Th ta="right">{metric}</Table.Th>
          <Table.Th ta="right">{t("bench.p50")}</Table.Th>
          <Table.Th ta="right">{t("bench.p99")}</Table.Th>
          <Table.Th>{t("compression.tried.remark")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {report.tried.map((trial) => {
          const value = trial.metrics[metric];
          const { latency } = trial;
          const measured = trial.state === "measured";
          return (
            <Table.Tr key={trial.key}>
              <Table.Td data-wrap="text">{trial.name}</Table.Td>
              <Table.Td ta="right">{measured ? format.bytes(trial.size_bytes) : "–"}</Table.Td>
              <Table.Td ta="right">{value == null ? "–" : format.quality(value)}</Table.Td>
              <Table.Td ta="right">{latency ? format.milliseconds(latency.p50_ms) : "–"}</Table.Td>
              <Table.Td ta="right">{latency ? format.milliseconds(latency.p99_ms) : "–"}</Table.Td>
              <Table.Td data-wrap="text">
                <Prose text={remark(trial)} />
              </Table.Td>
            </Table.Tr>
          );
        })}
      </Table.Tbody>
    </PlainTable>
  );
}

/** The relative error of each table by codec; the codec that the chosen version has is marked. */
export function TableErrors({ report }: { report: Compression }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const errors = report.table_errors;
  const recipe = report.points.find(({ key }) => key === report.chosen)?.recipe;
  const isChosen = (table: string, codec: string) =>
    recipe !== undefined &&
    (recipe.tables[table] === codec || (codec === UNCHANGED && recipe.unchanged.includes(table)));
  const codecs = [...new Set(Object.values(errors).flatMap((row) => Object.keys(row)))];
  return (
    <PlainTable label={t("compression.errors.tables")}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("compression.errors.codec")}</Table.Th>
          {Object.keys(errors).map((table) => (
            <Table.Th key={table} ta="right">
              {table}
            </Table.Th>
          ))}
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {codecs.map((codec) => (
          <Table.Tr key={codec}>
            <Table.Td>{codec}</Table.Td>
            {Object.entries(errors).map(([table, row]) => (
              <Table.Td key={table} ta="right">
                <Figure value={row[codec] == null ? "–" : format.percent(row[codec])}>
                  {isChosen(table, codec) ? t("compression.chosen") : undefined}
                </Figure>
              </Table.Td>
            ))}
          </Table.Tr>
        ))}
      </Table.Tbody>
    </PlainTable>
  );
}

/** The relative error of the output where one layer alone is quantized. */
export function LayerErrors({ errors }: { errors: Compression["layer_errors"] }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  return (
    <PlainTable label={t("compression.errors.layers")}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("compression.errors.layer")}</Table.Th>
          <Table.Th ta="right">{t("compression.errors.error")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {Object.entries(errors).map(([layer, error]) => (
          <Table.Tr key={layer}>
            <Table.Td data-wrap>{layer}</Table.Td>
            <Table.Td ta="right">{error == null ? "–" : format.percent(error)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </PlainTable>
  );
}
