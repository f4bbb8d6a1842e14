import { Badge } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { toFailure } from "@/api/problem";
import { IconPlugConnectedX } from "@/components/icons";
import { useFormat } from "@/i18n/format";

const INTERVAL_MS = 10_000;
const LOST_INTERVAL_MS = 3_000;

/** Says when the server is not reachable; what the page shows stays and is dated. */
export function Connection() {
  const { t } = useTranslation();
  const format = useFormat();
  const overview = api.useQuery("get", "/api/v1/overview", undefined, {
    refetchInterval: ({ state }) => (state.error ? LOST_INTERVAL_MS : INTERVAL_MS),
    retry: false,
  });
  const lost = overview.isError && toFailure(overview.error).kind !== "problem";
  const received = overview.dataUpdatedAt;
  return (
    <div role="status">
      {lost && (
        <Badge
          color="orange"
          size="lg"
          leftSection={<IconPlugConnectedX size={15} />}
          {...(received > 0 && {
            title: t("connection.stale", { when: format.ago(new Date(received)) }),
          })}
        >
          {t("connection.lost")}
        </Badge>
      )}
    </div>
  );
}
