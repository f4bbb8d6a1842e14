import { useCallback } from "react";
import { useTranslation } from "react-i18next";

const KNOWN = [
  "import",
  "split",
  "train",
  "evaluate",
  "export",
  "compress",
  "bench",
  "promote",
] as const;

/** Returns what names a pipeline stage in the page's language; unknown stages keep their name. */
export function useStageName(): (stage: string) => string {
  const { t } = useTranslation();
  return useCallback(
    (stage) => {
      const known = KNOWN.find((name) => name === stage);
      return known ? t(`stage.${known}`) : stage;
    },
    [t],
  );
}
