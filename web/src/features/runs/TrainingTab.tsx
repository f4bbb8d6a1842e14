import { Box, Group, Slider, Stack, Text, Title } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import type { RunMetrics } from "@/api/types";
import { MetricChart } from "./MetricChart";
import { groupByPhase, type PhaseSeries } from "./run-metrics";
import { usePhaseName } from "./use-phase-name";
import classes from "./TrainingTab.module.css";

const route = getRouteApi("/runs/$runId");
const MOST_SMOOTHING = 0.98;

/** The charts of a run: a section for each phase of each model, a chart for each quantity. */
export function TrainingTab({ metrics }: { metrics: RunMetrics }) {
  const { t } = useTranslation("runs");
  const { smoothing = 0 } = route.useSearch();
  const navigate = route.useNavigate();
  if (metrics.series.length === 0) return <Text c="dimmed">{t("training.none")}</Text>;
  return (
    <Stack gap="lg">
      <Group gap="sm" justify="flex-end">
        <Text size="sm" c="dimmed" aria-hidden="true">
          {t("training.smoothing")}
        </Text>
        <Box w={160}>
          <Slider
            size="sm"
            min={0}
            max={MOST_SMOOTHING}
            step={0.02}
            label={(value) => value.toFixed(2)}
            thumbLabel={t("training.smoothing")}
            value={smoothing}
            onChange={(value) =>
              void navigate({
                search: ({ smoothing: _, ...rest }) =>
                  value > 0 ? { ...rest, smoothing: value } : rest,
                replace: true,
              })
            }
          />
        </Box>
      </Group>
      {groupByPhase(metrics.series).map((group) => (
        <PhaseCharts key={`${group.model} ${group.phase}`} group={group} smoothing={smoothing} />
      ))}
    </Stack>
  );
}

interface PhaseChartsProps {
  group: PhaseSeries;
  smoothing: number;
}

function PhaseCharts({ group, smoothing }: PhaseChartsProps) {
  const { t } = useTranslation("runs");
  const phaseName = usePhaseName();
  const { series } = group;
  const name = phaseName(group);
  const lost = series.reduce((sum, { non_finite }) => sum + non_finite, 0);
  return (
    <section aria-label={name}>
      <Title order={2} fz="lg" mb="xs">
        {name}
      </Title>
      {lost > 0 && (
        <Text size="sm" c="orange" mb="xs">
          {t("training.nonFinite", { count: lost })}
        </Text>
      )}
      <div className={classes.grid}>
        {series.map((entry, index) => (
          <MetricChart
            key={entry.key}
            series={entry}
            name={`${name} ${entry.key}`}
            color={(index % 4) + 1}
            smoothing={smoothing}
          />
        ))}
      </div>
    </section>
  );
}
