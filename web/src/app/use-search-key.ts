import { useHotkeys } from "@mantine/hooks";
import { useNavigate } from "@tanstack/react-router";

/** Makes `/` put the cursor into the page's search box, or open the explore page, which has one. */
export function useSearchKey(): void {
  const navigate = useNavigate();
  useHotkeys([
    [
      "/",
      () => {
        const box = document.querySelector<HTMLInputElement>("input[data-search]");
        if (box) {
          box.focus();
          box.select();
        } else {
          void navigate({ to: "/explore", state: { focusSearch: true } });
        }
      },
    ],
  ]);
}
