import { Card, Text, Title } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { chooseModel, withEmbeddings } from "@/api/choose-model";
import { api } from "@/api/client";
import { NodeSearch } from "@/components/NodeSearch";
import classes from "./SearchCard.module.css";

/** The way into exploring: type an id and see what is near it. */
export function SearchCard() {
  const { t } = useTranslation("home");
  const navigate = useNavigate();
  const models = api.useQuery("get", "/api/v1/models").data;
  const searched = withEmbeddings(models ?? []);
  const model = searched.length > 0 ? chooseModel(searched) : undefined;
  return (
    <Card component="section" aria-label={t("search.title")} className={classes.card}>
      <Title order={2} fz="lg">
        {t("search.title")}
      </Title>
      <Text c="dimmed" size="sm" mb="sm">
        {t("search.text")}
      </Text>
      <div className={classes.box}>
        <NodeSearch
          size="md"
          labelled={false}
          model={model}
          onOpen={({ id, type }) =>
            void navigate({
              to: "/explore",
              search: { id: String(id), ...(type !== undefined && { type }) },
            })
          }
        />
      </div>
    </Card>
  );
}
