import { Group, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { EmptyState } from "@/components/EmptyState";
import { IconCompass } from "@/components/icons";
import { TextLink } from "@/components/TextLink";
import classes from "./Examples.module.css";

const EXAMPLES = 8;

interface ExamplesProps {
  model: string;
  version: number | undefined;
}

/** Shown before the first search: what can be asked, with a few ids to begin with. */
export function Examples({ model, version }: ExamplesProps) {
  const { t } = useTranslation("explore");
  const { data } = api.useQuery("get", "/api/v1/models/{name}/ids", {
    params: {
      path: { name: model },
      query: { prefix: "", limit: EXAMPLES, ...(version !== undefined && { version }) },
    },
  });
  return (
    <EmptyState icon={<IconCompass />} title={t("start.title")} text={t("start.text")}>
      {data !== undefined && data.ids.length > 0 && (
        <Group gap="xs" justify="center">
          <Text c="dimmed" size="sm">
            {t("start.try")}
          </Text>
          {data.ids.map(({ id, type }) => (
            <TextLink
              key={`${type} ${id}`}
              to="/explore"
              search={(old) => ({ ...old, id: String(id), type })}
              className={classes.example}
            >
              {id}
            </TextLink>
          ))}
        </Group>
      )}
    </EmptyState>
  );
}
