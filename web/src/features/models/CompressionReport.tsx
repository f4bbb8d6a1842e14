import { Alert, Badge, Group, Stack, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { Compression, ModelSummary } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { Facts } from "@/components/Facts";
import { Folded } from "@/components/Folded";
import { Panel } from "@/components/Panel";
import { Prose } from "@/components/Prose";
import { TimeText } from "@/components/TimeText";
import { useFormat } from "@/i18n/format";
import { CompressionChart } from "./CompressionChart";
import { CompressionDrift } from "./CompressionDrift";
import { LayerErrors, TableErrors, TriedTable } from "./CompressionDetails";
import { ParetoTable } from "./ParetoTable";

interface CompressionReportProps {
  model: ModelSummary;
  report: Compression;
}

/** One search: what it chose, the models that none beats, everything it tried, and its command. */
export function CompressionReport({ model, report }: CompressionReportProps) {
  const { t } = useTranslation("models");
  return (
    <Stack gap="md">
      <Panel
        title={
          <>
            {t("compression.title", { version: report.version })} <SearchBadges report={report} />
          </>
        }
      >
        <Stack gap="md">
          <Choice report={report} />
          {report.unfinished && <Unfinished report={report} unfinished={report.unfinished} />}
          <SearchFacts report={report} />
        </Stack>
      </Panel>
      {report.points.length > 0 && <ParetoTable model={model} report={report} />}
      <CompressionChart report={report} />
      <CompressionDrift report={report} />
      <Panel title={t("compression.details")}>
        <Stack gap="sm">
          <Folded title={t("compression.tried.title", { count: report.tried.length })}>
            <TriedTable report={report} />
          </Folded>
          {Object.keys(report.table_errors).length > 0 && (
            <Folded title={t("compression.errors.tables")}>
              <TableErrors report={report} />
            </Folded>
          )}
          {Object.keys(report.layer_errors).length > 0 && (
            <Folded title={t("compression.errors.layers")}>
              <LayerErrors errors={report.layer_errors} />
            </Folded>
          )}
          <Text size="sm">{t("compression.repeat")}</Text>
          <div>
            <CommandLine command={report.command} />
          </div>
          <Text size="xs" c="dimmed">
            {report.environment}
          </Text>
        </Stack>
      </Panel>
    </Stack>
  );
}

/** How far a search is. */
function SearchBadges({ report }: { report: Compression }) {
  const { t } = useTranslation("models");
  return (
    <>
      <Badge color={report.state === "finished" ? "teal" : "orange"}>
        {t(`compression.state.${report.state}`)}
      </Badge>{" "}
      {report.running && <Badge color="brand">{t("compression.running")}</Badge>}
    </>
  );
}

/** What was chosen, beside the original. */
function Choice({ report }: { report: Compression }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const { metric, original } = report;
  const chosen = report.points.find(({ key }) => key === report.chosen);
  if (chosen === undefined) return null;
  const quality = (value: number | null | undefined) =>
    value == null ? "–" : format.quality(value);
  const test = report.metrics_test[metric];
  return (
    <Text>
      {t("compression.chosenText", {
        version: chosen.version ?? "–",
        recipe: chosen.name,
        times: format.decimal(original.size_bytes / chosen.size_bytes),
        size: format.bytes(chosen.size_bytes),
        before: format.bytes(original.size_bytes),
        metric,
        value: quality(chosen.metrics[metric]),
        valueBefore: quality(original.metrics[metric]),
      })}{" "}
      {test != null && t("compression.testText", { metric, value: format.quality(test) })}
    </Text>
  );
}

interface UnfinishedProps {
  report: Compression;
  unfinished: NonNullable<Compression["unfinished"]>;
}

/** That a search has not finished, why, and how it goes on. */
function Unfinished({ report, unfinished }: UnfinishedProps) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const { failure, command } = unfinished;
  const number = format.integer(unfinished.trials);
  if (report.running) return <Text size="sm">{t("compression.runningText", { number })}</Text>;
  const before = report.points.length > 0 && ` ${t("compression.earlier")}`;
  return (
    <Alert
      color={failure === null ? "orange" : "red"}
      title={t(failure === null ? "compression.interrupted" : "compression.failed", { number })}
    >
      <Stack gap="xs" align="flex-start">
        {failure !== null && (
          <Text size="sm">
            <Prose text={failure} />
          </Text>
        )}
        <Text size="sm">
          {t(failure === null ? "compression.continue" : "compression.otherLimits")}
          {before}
        </Text>
        <CommandLine command={command} />
      </Stack>
    </Alert>
  );
}

function SearchFacts({ report }: { report: Compression }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const refused = report.tried.filter(({ state }) => state === "refused").length;
  const beyond = report.tried.filter(({ exceeds }) => exceeds.length > 0).length;
  const hasRelativeLatency = report.bounds.p50_ratio !== null || report.bounds.p99_ratio !== null;
  return (
    <Facts
      facts={[
        [
          t("compression.limits"),
          <Group key="limits" gap="0 12px">
            {report.limits.length === 0
              ? t("compression.noLimits")
              : report.limits.map((limit) => <span key={limit}>{limitText(limit, format)}</span>)}
            {hasRelativeLatency && (
              <Text span size="xs" c="dimmed">
                {t("compression.relativeLatency")}
              </Text>
            )}
          </Group>,
        ],
        [t("compression.triedCount"), format.integer(report.tried.length)],
        [t("compression.beyondCount"), format.integer(beyond)],
        [t("compression.refusedCount"), format.integer(refused)],
        [t("compression.updated"), <TimeText key="updated" at={report.updated_at} />],
      ]}
    />
  );
}

const SIZE_LIMIT = /^--max-size (\d+)B$/;

/** A limit as the command has it, its bytes in larger units. */
function limitText(limit: string, format: ReturnType<typeof useFormat>): string {
  const bytes = SIZE_LIMIT.exec(limit)?.[1];
  return bytes === undefined ? limit : `--max-size ${format.bytes(Number(bytes))}`;
}
