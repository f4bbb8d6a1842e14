import { ActionIcon, Tooltip, CopyButton as MantineCopyButton } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { IconCheck, IconCopy, IconLink } from "./icons";

interface CopyButtonProps {
  text: string;
  /** What it copies, where that is not plain from its place. */
  label?: string;
  link?: boolean;
}

/** Copies `text`. */
export function CopyButton({ text, label, link = false }: CopyButtonProps) {
  const { t } = useTranslation();
  const Icon = link ? IconLink : IconCopy;
  return (
    <MantineCopyButton value={text}>
      {({ copied, copy }) => {
        const name = copied ? t("copied") : (label ?? t("copy"));
        return (
          <Tooltip label={name}>
            <ActionIcon variant="subtle" color="gray" onClick={copy} aria-label={name}>
              {copied ? <IconCheck size={16} /> : <Icon size={16} />}
            </ActionIcon>
          </Tooltip>
        );
      }}
    </MantineCopyButton>
  );
}
