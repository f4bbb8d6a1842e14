import { useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";

/** Returns what asks for the models again, after a request that changed one. */
export function useRefreshModels(): () => Promise<void> {
  const queryClient = useQueryClient();
  return () =>
    queryClient.invalidateQueries({
      queryKey: api.queryOptions("get", "/api/v1/models").queryKey,
    });
}
