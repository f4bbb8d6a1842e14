import { useCallback } from "react";
import { useTranslation } from "react-i18next";

const KNOWN = ["neighbors", "answers", "infer", "program", "model"] as const;

/** Returns what names a measured operation in the page's language; unknown ones keep their name. */
export function useOperationName(): (operation: string) => string {
  const { t } = useTranslation("models");
  return useCallback(
    (operation) => {
      const known = KNOWN.find((name) => name === operation);
      return known ? t(`operation.${known}`) : operation;
    },
    [t],
  );
}
