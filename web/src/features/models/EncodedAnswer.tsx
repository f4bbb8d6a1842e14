import { SimpleGrid, Stack, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { EncodedNode, ModelVersion, UnseenInputs } from "@/api/types";
import { Folded } from "@/components/Folded";
import { MeteredNumber } from "@/components/MeteredNumber";
import { PlainTable } from "@/components/PlainTable";
import { Snippet } from "@/components/Snippet";
import { TextLink } from "@/components/TextLink";
import { useFormat } from "@/i18n/format";

const SHOWN_CLASSES = 10;

interface EncodedAnswerProps {
  name: string;
  version: ModelVersion;
  inputs: UnseenInputs;
  node: EncodedNode;
}

/** Classes, nearest nodes and embedding of a new node. */
export function EncodedAnswer({ name, version, inputs, node }: EncodedAnswerProps) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const classes = Object.entries(node.probabilities)
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, SHOWN_CLASSES);
  const highest = Math.max(...node.neighbors.map(({ score }) => score), Number.MIN_VALUE);
  const hasBoth = classes.length > 0 && inputs.target_type !== null;
  return (
    <Stack gap="sm" role="status">
      <SimpleGrid cols={{ base: 1, md: hasBoth ? 2 : 1 }} spacing="md">
        {classes.length > 0 && (
          <Ranked
            label={t("newNode.class")}
            measure={t("newNode.probability")}
            note={
              classes.length < inputs.classes.length &&
              t("newNode.ofClasses", { shown: classes.length, all: inputs.classes.length })
            }
            rows={classes.map(([label, share]) => ({
              key: label,
              label,
              share,
              text: format.percent(share),
            }))}
          />
        )}
        {inputs.target_type !== null && (
          <Ranked
            label={t("newNode.nearest", { type: inputs.target_type })}
            measure={t("newNode.score")}
            note={node.neighbors.length === 0 && t("newNode.noneNear")}
            rows={node.neighbors.map(({ id, type, score }) => ({
              key: String(id),
              label:
                type === inputs.node_type ? (
                  <TextLink
                    to="/explore"
                    search={{
                      model: name,
                      id: String(id),
                      type,
                      ...(!version.served && { version: version.version }),
                    }}
                    fw={550}
                  >
                    {id}
                  </TextLink>
                ) : (
                  id
                ),
              share: score / highest,
              text: score.toFixed(3),
            }))}
          />
        )}
      </SimpleGrid>
      <Folded title={t("newNode.embedding", { dim: format.integer(node.embedding.length) })}>
        <Snippet
          code={JSON.stringify(node.embedding)}
          label={t("newNode.embedding", { dim: format.integer(node.embedding.length) })}
          maxHeight={160}
        />
      </Folded>
    </Stack>
  );
}

interface RankedProps {
  label: string;
  /** What the numbers are. */
  measure: string;
  note: string | false;
  rows: { key: string; label: ReactNode; share: number; text: string }[];
}

function Ranked({ label, measure, note, rows }: RankedProps) {
  return (
    <div>
      <PlainTable label={label} verticalSpacing={5}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{label}</Table.Th>
            <Table.Th w="40%">{measure}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={row.key}>
              <Table.Td data-wrap>{row.label}</Table.Td>
              <Table.Td>
                <MeteredNumber share={row.share} text={row.text} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
      {note && (
        <Text size="xs" c="dimmed" mt={4}>
          {note}
        </Text>
      )}
    </div>
  );
}
