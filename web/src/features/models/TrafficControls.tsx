import { Button, Group, TextInput } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { ModelVersion } from "@/api/types";
import { ProblemAlert } from "@/components/ProblemAlert";
import { useRefreshModels } from "./use-refresh-models";

const CANARY_PERCENT = "10";
/** Largest difference of numbers that count as equal, as the command has it by default. */
const TOLERANCE = 1e-4;
const PERCENT = /^\d{1,3}(\.\d+)?$/;

/** Buttons that make a version the canary or the shadow of its model. */
export function TrafficControls({ name, version }: { name: string; version: ModelVersion }) {
  const { t } = useTranslation("models");
  const onSuccess = useRefreshModels();
  const [text, setText] = useState(CANARY_PERCENT);
  const canary = api.useMutation("post", "/api/v1/models/{name}/canary", { onSuccess });
  const shadow = api.useMutation("post", "/api/v1/models/{name}/shadow", { onSuccess });
  const percent = PERCENT.test(text.trim()) ? Number(text) : NaN;
  const valid = percent > 0 && percent <= 100;
  const params = { path: { name } };
  const error = canary.error ?? shadow.error;
  return (
    <>
      <Group gap="xs" align="flex-end">
        <TextInput
          size="xs"
          w="7rem"
          label={t("traffic.percent")}
          inputMode="decimal"
          autoComplete="off"
          value={text}
          error={!valid}
          onChange={({ currentTarget }) => setText(currentTarget.value)}
        />
        <Button
          size="xs"
          variant="default"
          disabled={!valid}
          loading={canary.isPending}
          onClick={() => canary.mutate({ params, body: { version: version.version, percent } })}
        >
          {t("traffic.startCanary")}
        </Button>
        <Button
          size="xs"
          variant="default"
          disabled={!valid}
          loading={shadow.isPending}
          onClick={() =>
            shadow.mutate({
              params,
              body: { version: version.version, percent, tolerance: TOLERANCE },
            })
          }
        >
          {t("traffic.startShadow")}
        </Button>
      </Group>
      {error && <ProblemAlert error={error} />}
    </>
  );
}
