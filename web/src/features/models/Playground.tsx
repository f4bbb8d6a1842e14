import { Alert, Button, Group, SegmentedControl, SimpleGrid, Stack, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { ModelVersion, NodeId } from "@/api/types";
import { Panel } from "@/components/Panel";
import { ProblemAlert } from "@/components/ProblemAlert";
import { QueryView } from "@/components/QueryView";
import { Snippet } from "@/components/Snippet";
import { useFormat } from "@/i18n/format";
import { exampleRequest, fetchMetadata, infer, type ModelMetadata } from "./kserve";
import { curlSnippet, pythonSnippet } from "./snippets";

const EXAMPLE_IDS = 2;
const LANGUAGES = ["curl", "Python", "JSON"] as const;
type SnippetLanguage = (typeof LANGUAGES)[number];

interface PlaygroundProps {
  name: string;
  version: ModelVersion;
}

/** How to call a version, with a request that can be sent from here. */
export function Playground({ name, version }: PlaygroundProps) {
  const { t } = useTranslation("models");
  const metadata = useQuery({
    queryKey: ["kserve", name, version.version],
    queryFn: () => fetchMetadata(name, version.version),
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const ids = api.useQuery(
    "get",
    "/api/v1/models/{name}/ids",
    {
      params: {
        path: { name },
        query: { prefix: "", limit: EXAMPLE_IDS, version: version.version },
      },
    },
    { retry: false },
  );
  const both = {
    data: metadata.data && ids.data && { metadata: metadata.data, nodes: sameType(ids.data.ids) },
    error: metadata.error ?? ids.error,
    refetch: () => Promise.all([metadata.refetch(), ids.refetch()]),
  };
  return (
    <Panel title={t("playground.title")} note={t("playground.text")}>
      {!version.served && (
        <Text size="sm" c="dimmed" mb="sm">
          {t("playground.notServed")}
        </Text>
      )}
      <QueryView query={both} skeleton={[220]}>
        {(data) => <Calls name={name} version={version} {...data} />}
      </QueryView>
    </Panel>
  );
}

/** One request names one node type. */
const sameType = (nodes: NodeId[]) => nodes.filter(({ type }) => type === nodes[0]?.type);

interface CallsProps extends PlaygroundProps {
  metadata: ModelMetadata;
  nodes: NodeId[];
}

function Calls({ name, version, metadata, nodes }: CallsProps) {
  const { t } = useTranslation("models");
  const [language, setLanguage] = useState<SnippetLanguage>("curl");
  const request = exampleRequest(metadata, nodes);
  const call = useMutation({ mutationFn: () => infer(name, version.version, request) });
  const inputs = {
    metadata,
    nodes,
    request,
    version: version.served ? undefined : version.version,
  };
  const code = {
    curl: () => curlSnippet(inputs),
    Python: () => pythonSnippet(inputs),
    JSON: () => request,
  }[language]();
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <SegmentedControl
          size="xs"
          aria-label={t("playground.language")}
          data={[...LANGUAGES]}
          value={language}
          onChange={(value) => setLanguage(value)}
        />
        <Button size="xs" loading={call.isPending} onClick={() => call.mutate()}>
          {t("playground.send")}
        </Button>
      </Group>
      <SimpleGrid cols={{ base: 1, md: call.data || call.error ? 2 : 1 }} spacing="sm">
        <Snippet code={code} label={t("playground.request")} maxHeight={340} />
        <Answer call={call} />
      </SimpleGrid>
    </Stack>
  );
}

function Answer({
  call,
}: {
  call: ReturnType<typeof useMutation<Awaited<ReturnType<typeof infer>>>>;
}) {
  const { t } = useTranslation("models");
  const format = useFormat();
  if (call.error) return <ProblemAlert error={call.error} />;
  if (!call.data) return null;
  const { status, milliseconds, body } = call.data;
  return (
    <Stack gap={4} role="status">
      <Alert color={status < 400 ? "teal" : "red"} py={4}>
        {t("playground.status", { status, time: format.milliseconds(milliseconds) })}
      </Alert>
      <Snippet code={body} label={t("playground.response")} maxHeight={290} />
    </Stack>
  );
}
