// The throughput as bars by minute, with the total copy quota as a line and changes of limits as marks.
import { amount } from "./limits.js";
import { bytes, chartWidth, clock, drawn, element, moment, perSecond } from "./parts.js";

const HEIGHT = 220;
const LEFT = 84;
const BOTTOM = 24;
const TOP = 10;
const SHOWN = 3;

export function chart(found) {
  const width = chartWidth();
  const { since_ms: since, until_ms: until, minutes, total_copy_quota: steps, changes } = found;
  const rates = minutes.flatMap((minute) => [minute.copied_bytes / 60, minute.fetched_bytes / 60]);
  const busiest = Math.max(0, ...rates);
  const quotas = steps.map((step) => step.bytes_per_second).filter((quota) => quota !== null);
  // A quota far above the traffic would flatten it: then the line is left out and named below.
  const shown = quotas.filter((quota) => busiest === 0 || quota <= busiest * 20);
  const highest = Math.max(busiest, ...shown, 1) * 1.05;
  const x = (at) => LEFT + ((at - since) / (until - since)) * (width - LEFT);
  const y = (rate) => TOP + (1 - rate / highest) * (HEIGHT - TOP - BOTTOM);
  const floor = y(0);
  const step = (width - LEFT) / ((until - since) / 60000);
  const bars = minutes.map((minute) => {
    const top = y(minute.copied_bytes / 60);
    return drawn("rect", { class: "copied", x: x(minute.began_ms), y: top, width: Math.max(step, 0.8), height: Math.max(0, floor - top) });
  });
  const read = minutes.filter((minute) => minute.fetched_bytes > 0).map((minute) => {
    const at = y(minute.fetched_bytes / 60);
    return drawn("path", { class: "fetched", d: `M${x(minute.began_ms)} ${at}h${Math.max(step, 2)}` });
  });
  const lines = steps.map((each, number) => {
    const end = Math.min(steps[number + 1]?.from_ms ?? until, until);
    if (each.bytes_per_second === null || each.bytes_per_second > highest || end <= each.from_ms) return null;
    return drawn("path", { class: "quota", d: `M${x(each.from_ms)} ${y(each.bytes_per_second)}H${x(end)}` });
  });
  // Each mark has the letter of its change in the list below.
  const marks = changes.map((change, number) => (change.changed_at_ms < until ? [
    drawn("path", { class: "mark", d: `M${x(change.changed_at_ms)} ${TOP}V${floor}` },
      drawn("title", {}, `${moment(change.changed_at_ms)} ${said(change)}`)),
    drawn("text", { x: Math.min(x(change.changed_at_ms) + 3, width - 10), y: TOP + 10 }, letter(number))] : null));
  const listed = changes.map((change, number) => element("li", {}, element("b", {}, letter(number)), ` ${moment(change.changed_at_ms)} ${said(change)}`)).reverse();
  const texts = (highest > 1.05 ? [0, 0.5, 1] : [0]).map((part) => drawn("text", { x: LEFT - 6, y: y(highest * part / 1.05) + 4, "text-anchor": "end" }, perSecond(highest * part / 1.05)));
  const hours = (width < 560 ? [0, 3] : [0, 1, 2, 3]).map((part) => {
    const at = since + ((until - since) * part) / 3;
    return drawn("text", { x: x(at), y: HEIGHT - 6, "text-anchor": part === 3 ? "end" : part ? "middle" : "start" }, clock(at));
  });
  const words = summary(found, busiest);
  return element("div", {},
    drawn("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": words },
      drawn("path", { class: "axis", d: `M${LEFT} ${floor}H${width}` }), bars, read, lines, marks, texts, hours),
    element("p", { class: "legend" }, key("copied", "sent by copies"), key("fetched", "read back"), key("quota", "total copy quota")),
    element("p", { class: "dim" }, words),
    changes.length ? [element("p", {}, `${changes.length} ${changes.length === 1 ? "change" : "changes"} of limits, the newest first:`), element("ul", { class: "plain" }, listed.slice(0, SHOWN))] : null,
    listed.length > SHOWN ? element("details", {}, element("summary", {}, "Earlier changes"), element("ul", { class: "plain" }, listed.slice(SHOWN))) : null);
}

const key = (kind, text) => element("span", {}, element("span", { class: `key ${kind}` }), text);
const letter = (number) => String.fromCharCode(97 + (number % 26));
const value = (stored, unit) => amount(stored === null ? null : Number(stored), unit);
const said = (change) => `${change.author}: ${change.entity}, ${change.name}: ${value(change.old_value, change.unit)} → ${value(change.new_value, change.unit)}`;

function summary(found, busiest) {
  const copied = found.minutes.reduce((sum, minute) => sum + minute.copied_bytes, 0);
  const waited = found.minutes.reduce((sum, minute) => sum + minute.copy_throttled_seconds, 0);
  const quota = found.total_copy_quota.at(-1).bytes_per_second;
  return `${bytes(copied)} sent by copies since ${clock(found.since_ms)}, at most ${perSecond(busiest)} in a minute; ` +
    `transfers waited for a quota, all their waits added up: ${Math.round(waited)} s; total copy quota now: ${quota === null ? "none" : perSecond(quota)}.`;
}
