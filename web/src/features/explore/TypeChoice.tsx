import { Alert, Button, Group, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { IconCompass } from "@/components/icons";

interface TypeChoiceProps {
  id: string;
  types: string[];
  onChoose: (type: string) => void;
}

/** Asks which node is meant where several node types have its id. */
export function TypeChoice({ id, types, onChoose }: TypeChoiceProps) {
  const { t } = useTranslation("explore");
  return (
    <Alert color="brand" icon={<IconCompass />} title={t("type.title", { id })}>
      <Text size="sm" mb="sm">
        {t("type.text")}
      </Text>
      <Group gap="xs" role="group" aria-label={t("type.label")}>
        {types.map((type) => (
          <Button key={type} variant="default" size="xs" onClick={() => onChoose(type)}>
            {type}
          </Button>
        ))}
      </Group>
    </Alert>
  );
}
