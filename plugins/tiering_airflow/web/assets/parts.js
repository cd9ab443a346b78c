// Parts that every view uses. All text becomes text nodes, so names and messages are never markup.

const NAMESPACE = "http://www.w3.org/2000/svg";
export const BASE = location.pathname.replace(/\/tiering\/page\/.*$/, "");

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

export const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const drawn = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(NAMESPACE, tag), attributes, children);

export async function ask(path, body, method = "POST", patience = 30000) {
  const request = { headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (body !== undefined) {
    request.method = method;
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), patience);
  try {
    const answer = await fetch(path, { ...request, signal: limit.signal });
    const content = await answer.json().catch(() => ({}));
    if (answer.ok) return content;
    const detail = typeof content.detail === "string" ? content.detail : `status ${answer.status}`;
    if (answer.status === 401) throw new Error("You are not logged in any more: reload Airflow.");
    if (answer.status === 403) throw new Error(`Your role in Airflow does not allow this (${detail}).`);
    throw new Error(detail);
  } catch (error) {
    if (error.name === "AbortError") throw new Error(`Airflow did not answer within ${patience / 1000} seconds.`);
    if (error instanceof TypeError) throw new Error("Airflow does not answer.");
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

// The width of a chart in pixels of the window, so that its words keep their size on every screen.
export const chartWidth = () => Math.max(260, Math.min(document.documentElement.clientWidth, 1920) - 84);

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  if (Math.abs(number) < 1024) return `${Math.round(number)} B`;
  let scaled = number / 1024;
  let unit = 0;
  while (Math.abs(scaled) >= 1024 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${scaled.toFixed(1)} ${UNITS[unit]}`;
}

export const perSecond = (number) => (number === null || number === undefined ? "–" : `${bytes(number)}/s`);
export const whole = (number) => (number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en"));

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.floor((minutes % 1440) / 60);
  return `${Math.floor(minutes / 1440)} d${hours ? ` ${hours} h` : ""}`;
}

export const clock = (milliseconds) => `${new Date(milliseconds).toISOString().slice(11, 16)} UTC`;

// Timestamps of records are what producers wrote, such as microseconds instead of milliseconds.
export function moment(milliseconds) {
  const at = new Date(milliseconds);
  const year = at.getUTCFullYear();
  if (!(year >= 1 && year <= 9999)) return `${milliseconds} ms after 1970`;
  return `${at.toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

// How long ago a run found a number, by the clock of the server that answered.
export const ago = (asOf, now) => (asOf === null ? "never measured" : `as of ${duration((now - asOf) / 1000)} ago`);

export function panel(title, ...children) {
  return element("section", { class: "panel" }, element("h2", {}, title), ...children);
}

const columnHead = ([head, , kind]) => element("th", { role: "columnheader", scope: "col", class: kind }, head);

// A table whose columns are [head, cell of a row, class]. In a narrow panel each row is a list of its cells with their
// heads; the roles are named, because browsers forget those of a table that is laid out otherwise.
export function table(caption, columns, rows, headOf = columnHead) {
  const line = (row) => element("tr", { role: "row" }, columns.map(([head, cell, kind]) => element("td", { role: "cell", class: kind, "data-head": head }, cell(row))));
  const heads = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, columns.map(headOf)));
  return framed(caption, element("table", { class: "folds", role: "table", "aria-label": caption }, heads, element("tbody", { role: "rowgroup" }, rows.map(line))));
}

// What may be wider than its panel scrolls in a frame of its own, which the keyboard reaches.
export const framed = (caption, content) => element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, content);

// Airflow's own API, which asks for the permission of the user who is logged in.
export const askAirflow = (path, body, method) => ask(`${BASE}/api/v2${path}`, body, method);

// An entry of the runbook, which this page serves: "docs/runbook.md#anchor".
export const runbook = (address) => element("a", { href: `#runbook/${address.split("#")[1] ?? ""}` }, address);

const TITLE = /docs\/runbook\.md, ([A-Z][^:;.]*)/;
// An advice in words: only its commands are code, and an entry of the runbook, which it names by its title, is a link.
export function advice(text) {
  return text.split(/(\.\/tiering [^:;,]+|kafka-[a-z-]+\.sh [^:;,]+|docs\/runbook\.md(?:#[\w-]+|, [A-Z][^:;.]*)?)/).map((part) => {
    if (part.startsWith("./tiering ") || part.startsWith("kafka-")) return element("code", {}, part);
    if (!part.startsWith("docs/runbook.md")) return part;
    const [, title] = TITLE.exec(part) ?? [];
    return title ? element("a", { href: `#runbook/${title.toLowerCase().replace(/[^\w -]/g, "").replaceAll(" ", "-")}` }, part) : runbook(part);
  });
}

// Sentences of the server have durations such as 3h 42m; a name has no spaces, so none is changed.
const UNIT = { d: "d", h: "h", m: "min", s: "s" };
export const spoken = (sentence) => sentence.replace(/(?<![\w.-])(\d+)([dhm]) (\d\d)([hms])\b/g, (_, first, unit, second, smaller) => `${first} ${UNIT[unit]} ${Number(second)} ${UNIT[smaller]}`);

// A retention in words, the same ones everywhere.
export const kept = (name, value) => (value === null || value === -1 ? (name === "retention.ms" ? "for ever" : "of any size") : name === "retention.ms" ? duration(value / 1000) : `${bytes(value)} of each partition`);
export const retentionOf = ({ retention_ms: time, retention_bytes: size }) =>
  (time === null && size === null ? "for ever" : [time, size].map((value, number) => (value === null ? null : kept(number ? "retention.bytes" : "retention.ms", value))).filter(Boolean).join(", and "));

// A button that confirms takes no press for a moment: the second half of a double click, and a key that is held down or
// pressed twice, are no answer to a question that was just put. Meanwhile the place of the question has the focus.
const CALM_MS = 700;
export function calmly(place, button) {
  place.setAttribute("tabindex", "-1");
  place.focus();
  button.disabled = true;
  setTimeout(() => {
    button.disabled = false;
    if (button.isConnected && document.activeElement === place) button.focus();
  }, CALM_MS);
}

// A button that says what it is about to do, and does it after a second press; Airflow's frame allows no dialogs. The
// warning says what it does; Escape, like No, goes back to the button.
export function confirmed(text, words, act, label = text, warning = "Sure?") {
  const place = element("span", { class: "row confirm", onkeydown: (event) => { if (event.key === "Escape" && place.children.length > 1) back(); } });
  const back = () => { offer(); place.firstChild.focus(); };
  const offer = () => place.replaceChildren(element("button", { class: "action", type: "button", "aria-label": label, onclick: confirm }, text));
  function confirm() {
    const sure = element("button", { class: "action", type: "button", onclick: () => { sure.disabled = true; act().finally(() => (place.isConnected ? back() : offer())); } }, words);
    const no = element("button", { class: "action", type: "button", onclick: back }, "No");
    place.replaceChildren(element("span", {}, `${warning} `), sure, no);
    calmly(place, sure);
  }
  offer();
  return place;
}

// The frame in which Airflow shows this page may not navigate the window, but it may tell Airflow's router to.
export function link(path, text) {
  const follow = (event) => {
    if (window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    window.parent.history.pushState(null, "", BASE + path);
    window.parent.dispatchEvent(new PopStateEvent("popstate", { state: null }));
  };
  return element("a", { href: BASE + path, onclick: follow }, text);
}
