// <time datetime> in the reader's zone. data-show: "instant" (default), "ago" (counts on), "clock" (hours to milliseconds).
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function span(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 60) return `${Math.floor(s)}s`;
  const minutes = Math.floor(s / 60), hours = Math.floor(s / 3600);
  if (minutes < 60) return `${minutes}m`;
  if (hours < 24) return minutes % 60 ? `${hours}h ${minutes % 60}m` : `${hours}h`;
  return hours % 24 ? `${Math.floor(hours / 24)}d ${hours % 24}h` : `${Math.floor(hours / 24)}d`;
}

// The server's clock counts, not the reader's: the page says what time it was there when it was made.
const made = Date.parse(document.documentElement.dataset.now || "");
const skew = Number.isNaN(made) ? 0 : made - Date.now();

function write(element) {
  const at = new Date(element.dateTime);
  if (Number.isNaN(at.getTime())) return;
  const show = element.dataset.show || "instant";
  element.title = `${full.format(at)} ${zone} (${element.dateTime})`;
  if (show === "ago" || show === "in") {
    const gone = Date.now() + skew - at.getTime();
    element.textContent = gone >= 0 ? `${span(gone)} ago` : `in ${span(-gone)}`;
  } else if (show === "age") element.textContent = span(Date.now() + skew - at.getTime());
  else if (show === "clock") element.textContent = `${at.toLocaleTimeString([], { hour12: false })}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  else element.textContent = day.format(at);
}

export function times(root) {
  for (const element of root.querySelectorAll("time[datetime]")) write(element);
}

setInterval(() => {
  if (document.hidden) return;
  for (const element of document.querySelectorAll("time[data-show=ago], time[data-show=in], time[data-show=age]")) write(element);
}, 1000);
