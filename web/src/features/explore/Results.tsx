import { Card, Group, SegmentedControl, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { toFailure } from "@/api/problem";
import type { NeighborAnswer } from "@/api/types";
import { CopyButton } from "@/components/CopyButton";
import { ProblemAlert } from "@/components/ProblemAlert";
import { QueryView } from "@/components/QueryView";
import { NeighborList } from "./NeighborList";
import { rememberedType, rememberType } from "./remembered-type";
import classes from "./Results.module.css";
import { SidePanel } from "./SidePanel";
import { TypeChoice } from "./TypeChoice";

const route = getRouteApi("/explore");

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
  const navigate = route.useNavigate();
  const types = ambiguousTypes(query.error);
  const remembered = rememberedType(model, types);
  useEffect(() => {
    if (remembered === undefined) return;
    void navigate({ search: (old) => ({ ...old, type: remembered }), replace: true });
  }, [remembered, navigate]);
  const choose = (chosen: string) => {
    rememberType(model, chosen);
    void navigate({ search: (old) => ({ ...old, type: chosen }) });
  };
  if (remembered !== undefined) return null;
  if (types.length > 0) return <TypeChoice id={id} types={types} onChoose={choose} />;
  if (query.error) return <ProblemAlert error={query.error} onRetry={() => void query.refetch()} />;
  return (
    <QueryView query={query} skeleton={[520]}>
      {(answer) => (
        <Answer answer={answer} linked={linked} pending={query.isPlaceholderData} onType={choose} />
      )}
    </QueryView>
  );
}

/** The node types to choose from if the server needs one; empty for every other error. */
function ambiguousTypes(error: unknown): string[] {
  if (!error) return [];
  const failure = toFailure(error);
  return failure.kind === "problem" && failure.problem.code === "ambiguous_id"
    ? failure.problem.choices
    : [];
}

interface AnswerProps {
  answer: NeighborAnswer;
  onType: (type: string) => void;
  linked: boolean;
  pending: boolean;
}

function Answer({ answer, linked, pending, onType }: AnswerProps) {
  const { t } = useTranslation("explore");
  const { query, query_types: types, neighbors } = answer;
  return (
    <div className={classes.answer} data-pending={pending || undefined} aria-busy={pending}>
      <Card component="section" p={0} aria-labelledby="answer-title" className={classes.card}>
        <Group className={classes.head} wrap="nowrap" gap="xs">
          <div className={classes.query}>
            <Title order={2} id="answer-title" fz="lg" className={classes.title}>
              <span className={classes.lead}>{t("result.heading")}</span> {query.id}
            </Title>
            <Text size="xs" c="dimmed">
              {query.type} · {t("result.by", { model: answer.model, version: answer.version })}
            </Text>
          </div>
          {types.length > 1 && (
            <SegmentedControl
              size="xs"
              aria-label={t("type.label")}
              data={types}
              value={query.type}
              onChange={onType}
            />
          )}
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
