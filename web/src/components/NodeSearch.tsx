import { Button, Combobox, Group, Text, TextInput, useCombobox } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { type SubmitEvent, useEffect, useRef, useState } from "react";
import { useRouterState } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import type { NodeId } from "@/api/types";
import { IconSearch } from "./icons";
import classes from "./NodeSearch.module.css";
import { SearchKeyHint } from "./SearchKeyHint";
import { SUGGESTION_DELAY_MS, useIdSuggestions } from "./use-id-suggestions";

interface NodeSearchProps {
  /** Whose ids are offered; without one nothing is. */
  model: string | undefined;
  version?: number | undefined;
  initial?: string;
  size?: "sm" | "md";
  /** Whether the label is shown; where a heading says the same it is for screen readers only. */
  labelled?: boolean;
  /** A suggestion names its type; typed text leaves it to the server. */
  onOpen: (node: { id: NodeId["id"]; type?: string }) => void;
}

/** Where an id is typed; ids that start with what was typed are offered below. */
export function NodeSearch(props: NodeSearchProps) {
  const { model, version, initial = "", size = "sm", labelled = true, onOpen } = props;
  const { t } = useTranslation();
  const [text, setText] = useState(initial);
  const input = useRef<HTMLInputElement>(null);
  const focusWanted = useRouterState({
    select: ({ location }) => location.state.focusSearch === true,
  });
  const [prefix] = useDebouncedValue(text.trim(), SUGGESTION_DELAY_MS);
  const combobox = useCombobox({ onDropdownClose: () => combobox.resetSelectedOption() });
  const wanted = combobox.dropdownOpened && prefix !== "";
  const suggestions = useIdSuggestions({ model, version, prefix, wanted });

  useEffect(() => {
    if (focusWanted) input.current?.focus();
  }, [focusWanted]);

  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    combobox.closeDropdown();
    if (text.trim() !== "") onOpen({ id: text.trim() });
  };
  const take = (value: string) => {
    const chosen = suggestions[Number(value)];
    if (!chosen) return;
    setText(String(chosen.id));
    combobox.closeDropdown();
    onOpen(chosen);
  };

  return (
    <form onSubmit={submit} role="search">
      <Group gap="xs" align="flex-end" wrap="nowrap">
        <Combobox store={combobox} onOptionSubmit={take} offset={4}>
          <Combobox.Target withExpandedAttribute>
            <TextInput
              ref={input}
              role="combobox"
              data-search
              flex={1}
              {...(labelled
                ? { label: t("search.label") }
                : { "aria-label": t("search.label"), placeholder: t("search.label") })}
              size={size}
              leftSection={<IconSearch size={17} />}
              rightSection={<SearchKeyHint />}
              autoComplete="off"
              spellCheck={false}
              value={text}
              onChange={(event) => {
                setText(event.currentTarget.value);
                combobox.openDropdown();
                combobox.resetSelectedOption();
              }}
              onClick={() => combobox.openDropdown()}
              onBlur={() => combobox.closeDropdown()}
            />
          </Combobox.Target>
          <Combobox.Dropdown hidden={suggestions.length === 0}>
            <Combobox.Options aria-label={t("search.suggestions")} className={classes.options}>
              {suggestions.map(({ id, type }, index) => (
                <Combobox.Option
                  value={String(index)}
                  key={`${type} ${id}`}
                  className={classes.option}
                >
                  <Suggestion id={String(id)} prefix={prefix} />
                  <Text span size="xs" c="dimmed">
                    {type}
                  </Text>
                </Combobox.Option>
              ))}
            </Combobox.Options>
          </Combobox.Dropdown>
        </Combobox>
        <Button type="submit" size={size}>
          {t("search.submit")}
        </Button>
      </Group>
    </form>
  );
}

function Suggestion({ id, prefix }: { id: string; prefix: string }) {
  return id.startsWith(prefix) ? (
    <span className={classes.id}>
      <strong>{prefix}</strong>
      {id.slice(prefix.length)}
    </span>
  ) : (
    <span className={classes.id}>{id}</span>
  );
}
