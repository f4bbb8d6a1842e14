import { Button, Fieldset, Group, SimpleGrid, Stack, Switch, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { api, fetchClient } from "@/api/client";
import { toFailure } from "@/api/problem";
import type { ModelVersion, UnseenInputs } from "@/api/types";
import { Folded } from "@/components/Folded";
import { Panel } from "@/components/Panel";
import { ProblemAlert } from "@/components/ProblemAlert";
import { Prose } from "@/components/Prose";
import { Snippet } from "@/components/Snippet";
import { EncodedAnswer } from "./EncodedAnswer";
import { FeatureField } from "./FeatureField";
import { NeighborsField } from "./NeighborsField";
import {
  emptyForm,
  encodeRequest,
  type ErrorsByPlace,
  exampleForm,
  featurePlace,
  type NewNodeForm,
  placeOf,
  relationPlace,
} from "./new-node";
import { encodeSnippet } from "./snippets";

const NEIGHBORS = 10;

interface NewNodePanelProps {
  name: string;
  version: ModelVersion;
}

/** A form for a node that is not in the graph; nothing for encoders that read no such nodes. */
export function NewNodePanel({ name, version }: NewNodePanelProps) {
  const { t } = useTranslation("models");
  const inputs = api.useQuery(
    "get",
    "/api/v1/models/{name}/encode",
    { params: { path: { name }, query: { version: version.version } } },
    { retry: false, staleTime: Number.POSITIVE_INFINITY },
  );
  const unseen = inputs.data?.unseen;
  if (!inputs.error && !unseen) return null;
  return (
    <Panel
      title={t("newNode.title")}
      {...(unseen && { note: t("newNode.text", { type: unseen.node_type }) })}
    >
      {unseen ? (
        <NewNode name={name} version={version} inputs={unseen} />
      ) : (
        <ProblemAlert error={inputs.error} onRetry={() => void inputs.refetch()} />
      )}
    </Panel>
  );
}

interface NewNodeProps extends NewNodePanelProps {
  inputs: UnseenInputs;
}

function NewNode({ name, version, inputs }: NewNodeProps) {
  const { t } = useTranslation("models");
  const [form, setForm] = useState(() => exampleForm(inputs));
  const [linked, setLinked] = useState(false);
  const [checked, setChecked] = useState(false);
  const request = encodeRequest(inputs, form);
  const canExclude = inputs.relations.some(({ node_type }) => node_type === inputs.target_type);
  const query = {
    ...(inputs.target_type !== null && { k: NEIGHBORS }),
    ...(canExclude && !linked && { linked }),
  };
  const encode = useMutation({
    mutationFn: ({ body }: { body: string; linked: boolean }) =>
      sendNode(name, { ...query, version: version.version }, body),
  });
  const sent = encode.variables;
  const isStale = !("body" in request) || sent?.body !== request.body || sent.linked !== linked;
  const errors = useErrors(inputs, checked ? request : null, encode.error);
  const change = (changed: NewNodeForm) => {
    setForm(changed);
    if (encode.error) encode.reset();
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setChecked(true);
    if ("body" in request) encode.mutate({ body: request.body, linked });
  };
  return (
    <Stack gap="md">
      <form onSubmit={submit} noValidate>
        <Stack gap="md">
          <Fields {...{ name, version, inputs, form, errors: errors.byPlace }} onChange={change} />
          <Group justify="space-between">
            <Group gap="xs">
              <Button size="xs" variant="default" onClick={() => change(exampleForm(inputs))}>
                {t("newNode.example")}
              </Button>
              <Button size="xs" variant="default" onClick={() => change(emptyForm(inputs))}>
                {t("newNode.clear")}
              </Button>
            </Group>
            <Group gap="md">
              {canExclude && (
                <Switch
                  size="xs"
                  label={t("newNode.withoutGiven")}
                  checked={!linked}
                  onChange={({ currentTarget }) => setLinked(!currentTarget.checked)}
                />
              )}
              <Button size="xs" type="submit" loading={encode.isPending}>
                {t("newNode.submit")}
              </Button>
            </Group>
          </Group>
        </Stack>
      </form>
      {errors.other !== null && <ProblemAlert error={errors.other} />}
      {encode.data && (
        <>
          {isStale && (
            <Text size="xs" c="dimmed">
              {t("newNode.stale")}
            </Text>
          )}
          <EncodedAnswer {...{ name, version, inputs }} node={encode.data} />
        </>
      )}
      {"body" in request && (
        <Folded title={t("newNode.request")}>
          <Snippet
            code={encodeSnippet(
              name,
              { ...query, ...(!version.served && { version: version.version }) },
              request.body,
            )}
            label={t("newNode.request")}
            maxHeight={240}
          />
        </Folded>
      )}
    </Stack>
  );
}

interface FieldsProps extends NewNodeProps {
  form: NewNodeForm;
  errors: ErrorsByPlace<ReactNode>;
  onChange: (form: NewNodeForm) => void;
}

function Fields({ name, version, inputs, form, errors, onChange }: FieldsProps) {
  const { t } = useTranslation("models");
  return (
    <SimpleGrid
      cols={{ base: 1, md: Math.min(inputs.features.length, inputs.relations.length, 1) + 1 }}
      spacing="md"
    >
      {inputs.features.length > 0 && (
        <Fieldset legend={t("newNode.features")}>
          <Stack gap="sm">
            {inputs.features.map((feature) => (
              <FeatureField
                key={feature.name}
                feature={feature}
                value={form.features[feature.name] ?? ""}
                error={errors[featurePlace(feature)]}
                onChange={(value) =>
                  onChange({ ...form, features: { ...form.features, [feature.name]: value } })
                }
              />
            ))}
          </Stack>
        </Fieldset>
      )}
      {inputs.relations.length > 0 && (
        <Fieldset legend={t("newNode.neighbors")}>
          <Stack gap="sm">
            {inputs.relations.map((relation) => (
              <NeighborsField
                key={relation.name}
                model={name}
                version={version.version}
                relation={relation}
                ids={form.neighbors[relation.name] ?? []}
                error={errors[relationPlace(relation)]}
                onChange={(ids) =>
                  onChange({ ...form, neighbors: { ...form.neighbors, [relation.name]: ids } })
                }
              />
            ))}
          </Stack>
        </Fieldset>
      )}
    </SimpleGrid>
  );
}

/** Errors beside the fields that they are about, and the one that is about none. */
function useErrors(
  inputs: UnseenInputs,
  request: ReturnType<typeof encodeRequest> | null,
  error: unknown,
): { byPlace: ErrorsByPlace<ReactNode>; other: unknown } {
  const { t } = useTranslation("models");
  const byPlace: ErrorsByPlace<ReactNode> = {};
  if (request && "errors" in request) {
    for (const [place, wrong] of Object.entries(request.errors)) {
      if (wrong) byPlace[place] = t(`newNode.error.${wrong.key}`, { ...wrong });
    }
  }
  const failure = error ? toFailure(error) : null;
  const place = failure?.kind === "problem" && placeOf(failure.problem, inputs);
  if (!failure || failure.kind !== "problem" || !place) return { byPlace, other: error };
  const { message, hint } = failure.problem;
  byPlace[place] = <Prose text={hint === null ? message : `${message}. ${hint}`} />;
  return { byPlace, other: null };
}

async function sendNode(
  name: string,
  query: { k?: number; linked?: boolean; version: number },
  body: string,
) {
  const { data, error } = await fetchClient.POST("/api/v1/models/{name}/encode", {
    params: { path: { name }, query },
    headers: { "content-type": "application/json" },
    body: { nodes: [] },
    bodySerializer: () => body,
  });
  if (error) throw error as unknown;
  return data.nodes[0] ?? null;
}
