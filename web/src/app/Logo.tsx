/** The mark of graphbox: a small graph in a box. */
export function Logo() {
  return (
    <svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="var(--mantine-color-brand-7)" />
      <g stroke="#c5ccff" strokeWidth="1.8" strokeLinecap="round">
        <path d="M9.5 10.5 22 8.5M9.5 10.5 12.5 22.5M22 8.5l1 12.5M12.5 22.5 23 21M9.5 10.5 23 21" />
      </g>
      <g fill="#fff">
        <circle cx="9.5" cy="10.5" r="3.6" />
        <circle cx="22" cy="8.5" r="2.5" />
        <circle cx="12.5" cy="22.5" r="2.5" />
        <circle cx="23" cy="21" r="3" />
      </g>
    </svg>
  );
}
