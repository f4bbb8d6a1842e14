import { Skeleton, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { ProblemAlert } from "./ProblemAlert";

/** The part of a query's result that decides what is shown. */
interface QueryState<Data> {
  data: Data | undefined;
  error: unknown;
  refetch: () => unknown;
}

interface QueryViewProps<Data> {
  query: QueryState<Data>;
  /** Heights in pixels of the blocks shown until the data is here. */
  skeleton?: number[];
  children: (data: Data) => ReactNode;
}

/** Shows data once it is here; until then its outline, or what went wrong. Old data stays shown. */
export function QueryView<Data>({ query, skeleton = [220], children }: QueryViewProps<Data>) {
  const { t } = useTranslation();
  if (query.data !== undefined) return children(query.data);
  if (query.error) return <ProblemAlert error={query.error} onRetry={() => void query.refetch()} />;
  return (
    <Stack gap="md" role="status" aria-label={t("loading")}>
      {skeleton.map((height, index) => (
        <Skeleton key={index} height={height} radius="md" />
      ))}
    </Stack>
  );
}
