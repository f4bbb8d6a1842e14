function required(name: string, what: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`expected the environment variable ${name}: ${what}`);
  return value;
}

/**
 * Where the server listens, ending in a slash. It shows a workspace in which the demo has run; for the
 * test of browser bundles it sends files, and this is the folder of the bundles.
 */
export const SERVER = required("GRAPHBOX_URL", "address of a running server").replace(/\/*$/, "/");

/** The browser: Debian's, unless told otherwise. */
export const BROWSER = process.env.GRAPHBOX_BROWSER ?? "/usr/bin/chromium";

/** Id of a run that goes on while the test looks at it; only the live test needs it. */
export const liveRun = () => required("GRAPHBOX_LIVE_RUN", "id of a run that is training");

/** Answers of Python for browser bundles that the server sends; only their test needs it. */
export const bundleAnswers = () =>
  required("GRAPHBOX_BUNDLE_ANSWERS", "JSON file with answers for browser bundles");

/** Name of a model that encodes unseen users, of whom items are neighbours; only its test needs it. */
export const unseenModel = () =>
  required("GRAPHBOX_UNSEEN_MODEL", "name of a model that encodes unseen nodes");

/** Where screenshots of all pages go; none are made when it is not set. */
export const SCREENSHOTS = process.env.GRAPHBOX_SCREENSHOTS;
