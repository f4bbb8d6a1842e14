import createFetchClient from "openapi-fetch";
import createClient from "openapi-react-query";
import { fetchExactly } from "./exact-ids";
import type { paths } from "./schema";
import { signInAgain } from "./sign-in";

/** Where the server is: beside this page, whatever path prefix a proxy put before both. */
export function serverAddress(path: string): string {
  return new URL(path.replace(/^\//, ""), document.baseURI).href;
}

/** Typed `fetch` of the REST interface. */
export const fetchClient = createFetchClient<paths>({
  baseUrl: new URL(".", document.baseURI).href,
  fetch: async (request) => {
    const response = await fetchExactly(request);
    signInAgain(response);
    return response;
  },
});

/** Typed queries of the REST interface: `api.useQuery("get", "/api/v1/runs")`. */
export const api = createClient(fetchClient);
