import { Autocomplete, Switch, TagsInput, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { UnseenFeature } from "@/api/types";
import { useFormat } from "@/i18n/format";
import type { FeatureInput } from "./new-node";

const SHOWN_CATEGORIES = 50;

interface FeatureFieldProps {
  feature: UnseenFeature;
  value: FeatureInput;
  error: ReactNode;
  onChange: (value: FeatureInput) => void;
}

/** The input of a feature, by its kind. */
export function FeatureField({ feature, value, error, onChange }: FeatureFieldProps) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const { name, kind } = feature;
  const description = t(`newNode.kind.${kind}`, {
    number: format.integer(kind === "vector" ? (feature.dim ?? 0) : feature.num_categories),
  });
  const common = { label: name, description, error };
  if (typeof value === "boolean") {
    return (
      <Switch
        {...common}
        checked={value}
        onChange={({ currentTarget }) => onChange(currentTarget.checked)}
      />
    );
  }
  if (typeof value !== "string") {
    return <TagsInput {...common} value={value} onChange={onChange} splitChars={[]} />;
  }
  if (kind === "categorical") {
    return (
      <Autocomplete
        {...common}
        data={feature.categories}
        limit={SHOWN_CATEGORIES}
        value={value}
        onChange={onChange}
      />
    );
  }
  return (
    <TextInput
      {...common}
      inputMode={kind === "vector" ? "text" : "decimal"}
      autoComplete="off"
      value={value}
      onChange={({ currentTarget }) => onChange(currentTarget.value)}
    />
  );
}
