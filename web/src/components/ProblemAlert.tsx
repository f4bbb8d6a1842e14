import { Alert, Button, Code, Stack, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { toFailure } from "@/api/problem";
import type { Problem } from "@/api/types";
import { CommandLine } from "./CommandLine";
import { Folded } from "./Folded";
import { Prose } from "./Prose";
import { IconAlertTriangle, IconPlugConnectedX, IconRefresh } from "./icons";

interface ProblemAlertProps {
  error: unknown;
  onRetry?: () => void;
}

/** An error in words: what happened, where, and what to do next. */
export function ProblemAlert({ error, onRetry }: ProblemAlertProps) {
  const { t } = useTranslation();
  const failure = toFailure(error);
  const retry = onRetry && (
    <Button size="xs" variant="default" leftSection={<IconRefresh size={14} />} onClick={onRetry}>
      {t("problem.retry")}
    </Button>
  );
  if (failure.kind === "unreachable") {
    return (
      <Alert
        role="alert"
        color="orange"
        icon={<IconPlugConnectedX />}
        title={t("problem.unreachable")}
      >
        <Stack gap="xs" align="flex-start">
          <Text size="sm">{t("problem.unreachableHint")}</Text>
          <CommandLine command="graphbox serve" />
          {retry}
        </Stack>
      </Alert>
    );
  }
  if (failure.kind === "unexpected") {
    return (
      <Alert role="alert" color="red" icon={<IconAlertTriangle />} title={t("problem.unexpected")}>
        <Stack gap="xs" align="flex-start">
          <Code block>{failure.text}</Code>
          {retry}
        </Stack>
      </Alert>
    );
  }
  return (
    <Alert
      role="alert"
      color="red"
      icon={<IconAlertTriangle />}
      title={<Prose text={failure.problem.message} />}
    >
      <Stack gap="xs" align="flex-start">
        {failure.problem.hint !== null && (
          <Text size="sm">
            <Prose text={failure.problem.hint} />
          </Text>
        )}
        {retry}
        <ProblemDetails problem={failure.problem} />
      </Stack>
    </Alert>
  );
}

function ProblemDetails({ problem }: { problem: Problem }) {
  const { t } = useTranslation();
  const facts: [string, string | null][] = [
    [t("problem.where"), problem.where],
    [t("problem.code"), problem.code],
    [t("problem.requestId"), problem.request_id],
  ];
  return (
    <Folded title={t("problem.details")}>
      {facts.map(
        ([name, value]) =>
          value && (
            <Text size="xs" key={name} mt={4}>
              {name} <Code>{value}</Code>
            </Text>
          ),
      )}
    </Folded>
  );
}
