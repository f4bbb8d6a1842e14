import { Group, Select, Switch } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import type { ModelSummary, NodeId } from "@/api/types";
import { NodeSearch } from "@/components/NodeSearch";
import { DEFAULT_RESULT_COUNT, type ExploreSearch, RESULT_COUNTS } from "./search";
import classes from "./Controls.module.css";

const route = getRouteApi("/explore");
const SERVED = "served";

interface ControlsProps {
  models: ModelSummary[];
  model: string;
}

/** The choice of the model, the node and the number of results. */
export function Controls({ models, model }: ControlsProps) {
  const { t } = useTranslation("explore");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const change = (
    changes: Partial<Record<keyof ExploreSearch, string | number | false | undefined>>,
  ) => void navigate({ search: (old) => ({ ...old, ...changes }) as ExploreSearch });
  const open = ({ id, type }: { id: NodeId["id"]; type?: string }) =>
    change({ id: String(id), type });
  const versions = models.find(({ name }) => name === model)?.versions ?? [];
  return (
    <Group className={classes.controls} gap="sm" align="flex-end">
      <Select
        className={classes.model}
        label={t("model")}
        data={models.map(({ name }) => name)}
        value={model}
        allowDeselect={false}
        onChange={(name) => change({ model: name ?? undefined, version: undefined })}
      />
      <Select
        className={classes.version}
        label={t("version")}
        data={[
          { value: SERVED, label: t("servedVersion") },
          ...versions.map(({ version, precision }) => ({
            value: String(version),
            label: `${version} · ${precision}`,
          })),
        ]}
        value={search.version === undefined ? SERVED : String(search.version)}
        allowDeselect={false}
        onChange={(value) => change({ version: value === SERVED ? undefined : Number(value) })}
      />
      <div className={classes.search}>
        <NodeSearch
          key={`${search.type}/${search.id}`}
          model={model}
          version={search.version}
          initial={search.id ?? ""}
          onOpen={open}
        />
      </div>
      <Select
        className={classes.count}
        label={t("count")}
        data={RESULT_COUNTS.map(String)}
        value={String(search.k ?? DEFAULT_RESULT_COUNT)}
        allowDeselect={false}
        onChange={(value) => change({ k: Number(value) })}
      />
      <Switch
        className={classes.linked}
        label={t("withoutLinked")}
        checked={search.linked === false}
        onChange={({ currentTarget }) =>
          change({ linked: currentTarget.checked ? false : undefined })
        }
      />
    </Group>
  );
}
