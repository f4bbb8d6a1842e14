import { TagsInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import type { UnseenRelation } from "@/api/types";
import { SUGGESTION_DELAY_MS, useIdSuggestions } from "@/components/use-id-suggestions";

interface NeighborsFieldProps {
  model: string;
  version: number;
  relation: UnseenRelation;
  ids: string[];
  error: ReactNode;
  onChange: (ids: string[]) => void;
}

/** The neighbours of a new node in one relation; ids that start with what is typed are offered. */
export function NeighborsField(props: NeighborsFieldProps) {
  const { model, version, relation, ids, error, onChange } = props;
  const { t } = useTranslation("models");
  const [search, setSearch] = useState("");
  const [wanted, setWanted] = useState(false);
  const [prefix] = useDebouncedValue(search.trim(), SUGGESTION_DELAY_MS);
  const type = relation.node_type;
  const suggestions = useIdSuggestions({ model, version, type, prefix, wanted });
  return (
    <TagsInput
      label={relation.name}
      description={t("newNode.ids", { type })}
      error={error}
      data={[...new Set(suggestions.map(({ id }) => String(id)))]}
      value={ids}
      onChange={onChange}
      searchValue={search}
      onSearchChange={setSearch}
      onDropdownOpen={() => setWanted(true)}
      splitChars={[]}
      maxDropdownHeight={400}
      clearable
    />
  );
}
