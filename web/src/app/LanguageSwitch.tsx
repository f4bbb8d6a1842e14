import { SegmentedControl } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { chooseLanguage, type Language, LANGUAGES } from "@/i18n/setup";

const options = Object.entries(LANGUAGES).map(([value, name]) => ({
  value,
  label: <span lang={value}>{name}</span>,
}));

/** Switches the language of the page. */
export function LanguageSwitch() {
  const { t, i18n } = useTranslation();
  return (
    <SegmentedControl
      size="xs"
      aria-label={t("language")}
      data={options}
      value={i18n.language}
      onChange={(language) => void chooseLanguage(language as Language)}
    />
  );
}
