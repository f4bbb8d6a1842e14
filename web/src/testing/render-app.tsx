import { createMemoryHistory } from "@tanstack/react-router";
import { render } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { App, makeQueryClient } from "@/app/App";
import { makeRouter } from "@/app/router";

/** Shows the whole page at an address; a failed request is not repeated. */
export function renderApp(address: string) {
  const router = makeRouter(createMemoryHistory({ initialEntries: [address] }));
  const queryClient = makeQueryClient();
  queryClient.setDefaultOptions({ queries: { retry: false } });
  return {
    user: userEvent.setup(),
    router,
    ...render(<App router={router} queryClient={queryClient} />),
  };
}
