const ADDRESS = "graphbox.address";
const RELOADED_AT = "graphbox.reloaded-at";
const SHORTEST_INTERVAL_MS = 10_000;

/** The window's reload, which tests replace. */
export const browserWindow = { reload: () => window.location.reload() };

/**
 * Reloads the page if the server no longer accepts its cookie: the server then answers with the form for
 * the token. The address is kept for after it. At most once in a while, should a proxy keep the page.
 */
export function signInAgain(response: Response): void {
  if (response.status !== 401) return;
  try {
    const reloadedAt = Number(window.sessionStorage.getItem(RELOADED_AT));
    if (Date.now() - reloadedAt < SHORTEST_INTERVAL_MS) return;
    window.sessionStorage.setItem(RELOADED_AT, String(Date.now()));
    window.sessionStorage.setItem(ADDRESS, window.location.hash);
  } catch {
    return; // Without storage nothing would stop a page that a proxy keeps from reloading for ever.
  }
  browserWindow.reload();
}

/** Returns to the address from before the form for the token. */
export function restoreAddress(): void {
  try {
    const address = window.sessionStorage.getItem(ADDRESS);
    window.sessionStorage.removeItem(ADDRESS);
    if (address && window.location.hash === "") {
      window.history.replaceState(window.history.state, "", address);
    }
  } catch {
    // Without storage there is nothing to restore.
  }
}
