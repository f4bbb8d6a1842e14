import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  type RouterHistory,
} from "@tanstack/react-router";
import { parseExploreSearch } from "@/features/explore/search";
import { parseModelSearch } from "@/features/models/search";
import { parseRunSearch, parseRunsSearch } from "@/features/runs/search";
import { NotFoundPage } from "./NotFoundPage";
import { CrashPage } from "./CrashPage";
import { parseSearch, stringifySearch } from "./search-params";
import { Shell } from "./Shell";

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NotFoundPage,
  errorComponent: CrashPage,
});

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  component: lazyRouteComponent(() => import("@/features/home/HomePage"), "HomePage"),
});

const runs = createRoute({
  getParentRoute: () => root,
  path: "/runs",
  validateSearch: parseRunsSearch,
  component: lazyRouteComponent(() => import("@/features/runs/RunsPage"), "RunsPage"),
});

const run = createRoute({
  getParentRoute: () => root,
  path: "/runs/$runId",
  validateSearch: parseRunSearch,
  component: lazyRouteComponent(() => import("@/features/runs/RunPage"), "RunPage"),
});

const explore = createRoute({
  getParentRoute: () => root,
  path: "/explore",
  validateSearch: parseExploreSearch,
  component: lazyRouteComponent(() => import("@/features/explore/ExplorePage"), "ExplorePage"),
});

const models = createRoute({
  getParentRoute: () => root,
  path: "/models",
  component: lazyRouteComponent(() => import("@/features/models/ModelsPage"), "ModelsPage"),
});

const model = createRoute({
  getParentRoute: () => root,
  path: "/models/$name",
  validateSearch: parseModelSearch,
  component: lazyRouteComponent(() => import("@/features/models/ModelPage"), "ModelPage"),
});

const graphs = createRoute({
  getParentRoute: () => root,
  path: "/graphs",
  component: lazyRouteComponent(() => import("@/features/graphs/GraphsPage"), "GraphsPage"),
});

const targets = createRoute({
  getParentRoute: () => root,
  path: "/targets",
  component: lazyRouteComponent(() => import("@/features/targets/TargetsPage"), "TargetsPage"),
});

const routeTree = root.addChildren([home, runs, run, explore, models, model, graphs, targets]);

/**
 * Makes the routes. Addresses live behind the `#`, so that the server needs no rewriting rules and
 * the page works below any path prefix.
 */
export function makeRouter(history: RouterHistory = createHashHistory()) {
  return createRouter({
    routeTree,
    history,
    parseSearch,
    stringifySearch,
    defaultPreload: "intent",
    // The pages' data is cached by the queries; the router only loads code.
    defaultPreloadStaleTime: 0,
    scrollRestoration: true,
  });
}

export type AppRouter = ReturnType<typeof makeRouter>;

declare module "@tanstack/react-router" {
  interface Register {
    router: AppRouter;
  }

  interface HistoryState {
    /** The page was opened to search: the cursor goes into its search box. */
    focusSearch?: boolean;
  }
}
