import { keepPreviousData } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { NodeId } from "@/api/types";

const SUGGESTIONS = 12;

/** Delay between a key and the request for what it completes. */
export const SUGGESTION_DELAY_MS = 120;

interface IdQuestion {
  model: string | undefined;
  version: number | undefined;
  /** Node type of the ids; without one those of all types that can be asked about. */
  type?: string;
  prefix: string;
  /** Whether anybody looks at them. */
  wanted: boolean;
}

/** Ids of a model that start with a prefix. */
export function useIdSuggestions({ model, version, type, prefix, wanted }: IdQuestion): NodeId[] {
  const asked = wanted && model !== undefined;
  const query = api.useQuery(
    "get",
    "/api/v1/models/{name}/ids",
    {
      params: {
        path: { name: model ?? "" },
        query: {
          prefix,
          limit: SUGGESTIONS,
          ...(type !== undefined && { type }),
          ...(version !== undefined && { version }),
        },
      },
    },
    { enabled: asked, placeholderData: keepPreviousData, retry: false },
  );
  return asked ? (query.data?.ids ?? []) : [];
}
