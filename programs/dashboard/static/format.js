// How the page writes numbers, times and durations.

export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1000) return (Math.sign(value) * Math.round(Math.abs(value))).toLocaleString("en");
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

export function whole(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en") : "–";
}

export function percent(share) {
  return Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : "–";
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  return count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${Math.round(count / 1e6)} MB`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const minutes = Math.round(seconds / 60);
  if (Math.round(seconds) < 60) return `${Math.round(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${(minutes / 1440).toFixed(1)} days`;
}

export function moment(seconds) {
  return new Date(1000 * seconds).toLocaleString("sv");  // 2026-01-31 23:59:59, in the reader's own time
}
