import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useState } from "react";
import { shouldRetry } from "@/api/problem";
import { resolveVariables } from "./css-variables";
import { makeRouter, type AppRouter } from "./router";
import { theme } from "./theme";

/** Makes the cache of the server's answers, with the page's rules for repeating and refreshing. */
export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: { retry: shouldRetry, staleTime: 5_000, refetchOnWindowFocus: true },
    },
  });
}

interface AppProps {
  router?: AppRouter;
  queryClient?: QueryClient;
}

/** The whole page: theme, cache and routes. */
export function App(props: AppProps) {
  const [router] = useState(() => props.router ?? makeRouter());
  const [queryClient] = useState(() => props.queryClient ?? makeQueryClient());
  return (
    <MantineProvider
      theme={theme}
      cssVariablesResolver={resolveVariables}
      defaultColorScheme="auto"
    >
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  );
}
