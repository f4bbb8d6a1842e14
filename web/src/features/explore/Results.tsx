import { Card, Group, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { NeighborAnswer } from "@/api/types";
import { CopyButton } from "@/components/CopyButton";
import { ProblemAlert } from "@/components/ProblemAlert";
import { QueryView } from "@/components/QueryView";
import { NeighborList } from "./NeighborList";
import classes from "./Results.module.css";
import { SidePanel } from "./SidePanel";

interface ResultsProps {
  model: string;
  version: number | undefined;
  type: string | undefined;
  id: string;
  k: number;
  linked: boolean;
}

/** The answer to a search. The former one stays, paler, until the next is here. */
export function Results({ model, version, type, id, k, linked }: ResultsProps) {
  const query = api.useQuery(
    "get",
    "/api/v1/models/{name}/neighbors",
    {
      params: {
        path: { name: model },
        query: {
          id,
          k,
          ...(!linked && { linked }),
          ...(type !== undefined && { type }),
          ...(version !== undefined && { version }),
        },
      },
    },
    { placeholderData: keepPreviousData, staleTime: Number.POSITIVE_INFINITY },
  );
  if (query.error) return <ProblemAlert error={query.error} onRetry={() => void query.refetch()} />;
  return (
    <QueryView query={query} skeleton={[520]}>
      {(answer) => <Answer answer={answer} linked={linked} pending={query.isPlaceholderData} />}
    </QueryView>
  );
}

interface AnswerProps {
  answer: NeighborAnswer;
  linked: boolean;
  pending: boolean;
}

function Answer({ answer, linked, pending }: AnswerProps) {
  const { t } = useTranslation("explore");
  const { query, neighbors } = answer;
  return (
    <div className={classes.answer} data-pending={pending || undefined} aria-busy={pending}>
      <Card component="section" p={0} aria-labelledby="answer-title" className={classes.card}>
        <Group className={classes.head} justify="space-between" wrap="nowrap">
          <div>
            <Title order={2} id="answer-title" fz="lg" className={classes.title}>
              <span className={classes.lead}>{t("result.heading")}</span> {query.id}
            </Title>
            <Text size="xs" c="dimmed">
              {query.type} · {t("result.by", { model: answer.model, version: answer.version })}
            </Text>
          </div>
          <CopyButton link text={window.location.href} label={t("share")} />
        </Group>
        {neighbors.length === 0 ? (
          <Text c="dimmed" p="md">
            {t(linked ? "result.none" : "result.noneNew")}
          </Text>
        ) : (
          <NeighborList neighbors={neighbors} />
        )}
      </Card>
      <Stack gap="md">
        <SidePanel neighbors={neighbors} linked={linked} />
      </Stack>
    </div>
  );
}
