import { Group, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { RunSummary } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { Panel } from "@/components/Panel";
import { QueryView } from "@/components/QueryView";
import { StateBadge } from "@/components/StateBadge";
import { TextLink } from "@/components/TextLink";
import { TimeText } from "@/components/TimeText";
import { useFormat } from "@/i18n/format";
import { useStageName } from "@/components/use-stage-name";
import classes from "./HomeList.module.css";

const SHOWN = 6;
const REFRESH_MS = 5_000;

/** The latest runs, those that run first. */
export function RecentRuns() {
  const { t } = useTranslation("home");
  const runs = api.useQuery("get", "/api/v1/runs", undefined, { refetchInterval: REFRESH_MS });
  return (
    <Panel
      title={t("recent.title")}
      actions={
        <TextLink to="/runs" size="sm">
          {t("recent.all")}
        </TextLink>
      }
      flush
    >
      <QueryView query={runs} skeleton={[48, 48, 48]}>
        {(list) =>
          list.length === 0 ? (
            <div className={classes.empty}>
              <Text c="dimmed" mb="xs">
                {t("running.none")}
              </Text>
              <CommandLine command="graphbox run graphbox.yaml" />
            </div>
          ) : (
            <ul className={classes.list}>
              {runningFirst(list)
                .slice(0, SHOWN)
                .map((run) => (
                  <RunRow key={run.id} run={run} />
                ))}
            </ul>
          )
        }
      </QueryView>
    </Panel>
  );
}

function runningFirst(runs: RunSummary[]): RunSummary[] {
  return runs.toSorted(
    (a, b) =>
      Number(b.state === "running") - Number(a.state === "running") ||
      b.created_at.localeCompare(a.created_at),
  );
}

function RunRow({ run }: { run: RunSummary }) {
  const { t } = useTranslation("home");
  const format = useFormat();
  const stageName = useStageName();
  return (
    <li>
      <Link to="/runs/$runId" params={{ runId: run.id }} className={classes.row}>
        <span className={classes.main}>
          <span className={classes.name}>{run.name}</span>
          <span className={classes.note}>
            {run.state === "running" && run.stage !== null
              ? t("running.stage", { stage: stageName(run.stage) })
              : format.seconds(run.seconds)}
          </span>
        </span>
        <Group gap="sm" wrap="nowrap">
          <span className={classes.note}>
            <TimeText at={run.created_at} />
          </span>
          <StateBadge state={run.state} />
        </Group>
      </Link>
    </li>
  );
}
