import { Kbd, Tooltip } from "@mantine/core";
import { useTranslation } from "react-i18next";

const KEY = "/";

/** Reminds that a key leads to the search box. */
export function SearchKeyHint() {
  const { t } = useTranslation();
  return (
    <Tooltip label={t("shortcut", { key: KEY })}>
      <Kbd size="xs" aria-hidden="true">
        {KEY}
      </Kbd>
    </Tooltip>
  );
}
