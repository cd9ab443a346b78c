// The frame of the page: its first line, the choice of the view, its state, and Airflow's colours.
import { backfill } from "./backfill.js";
import { limits } from "./limits.js";
import { needs } from "./needs.js";
import { now, setPause } from "./now.js";
import { ago, ask, bytes, duration, element, link, whole } from "./parts.js";
import { quality } from "./quality.js";
import { retention } from "./retention.js";
import { runbook } from "./runbook.js";
import { topic } from "./topic.js";
import { showAll, topics } from "./topics.js";

const EVERY_MS = 2000;
const THROUGHPUT_EVERY_MS = 30000;
const OLD_MS = 24 * 3600e3;
const view = document.getElementById("view");
const facts = document.getElementById("facts");
const state = document.getElementById("state");
const throughput = { content: null, error: null, askedAt: -Infinity };
let present = null;
let readAt = 0;
let shown = "";
let wrong = "";

let current = "now";

function theme() {
  let dark = matchMedia("(prefers-color-scheme: dark)").matches;
  try {
    const classes = window.parent.document.documentElement.classList;
    if (window.parent !== window && (classes.contains("dark") || classes.contains("light"))) dark = classes.contains("dark");
  } catch {
    // Another site embeds nothing of this page, so this is a browser without a parent's document.
  }
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function firstLine(found) {
  const { totals } = found;
  const fact = (value, text, title, kind) => element("li", { title, class: kind }, element("b", {}, value), ` ${text}`);
  // What a run found long ago says so in its words, and not only to the mouse.
  const since = ({ as_of_ms: asOf }) => (asOf !== null && found.as_of_ms - asOf > OLD_MS ? `, ${ago(asOf, found.as_of_ms)}` : "");
  const judged = totals.judged_bytes.value;
  // What was copied after the last count is not safe before it is counted.
  const counted = Math.max(judged ?? 0, totals.finished_bytes);
  const safe = judged ? fact(`${Math.floor((1000 * (totals.safe_bytes.value ?? 0)) / counted) / 10} %`, `of the remote bytes are safe${since(totals.judged_bytes)}`, `verified, ${ago(totals.judged_bytes.as_of_ms, found.as_of_ms)}; what was copied since counts as not safe`)
    : fact("nothing", "verified yet", "a verification of the archive says what is safe");
  const paused = found.paused_topics.includes("*") ? "all topics" : found.paused_topics.length ? whole(found.paused_topics.length) : "nothing";
  const findings = (totals.findings.value ?? 0) + (totals.failed_segments.value ?? 0);
  const isAudited = totals.findings.as_of_ms !== null;
  const waits = totals.waiting_seconds;
  const alarms = found.more_alarms.reduce((sum, { alarms: more }) => sum + more, found.alarms.length);
  facts.replaceChildren(
    fact(whole(totals.topics), `${totals.topics === 1 ? "topic" : "topics"} with remote bytes`),
    fact(bytes(totals.finished_bytes), "remote", `${bytes(totals.stored_bytes)} are stored and paid for`),
    ...(totals.cost_per_month === null ? [] : [fact(`${totals.cost_per_month.amount.toFixed(2)} ${totals.cost_per_month.currency}`, totals.cost_per_month.gib_month === null ? "a month for storage" : `a month for storage, at ${totals.cost_per_month.gib_month} ${totals.cost_per_month.currency} a GiB`, "what storing all of it costs, without requests, as of the last size run; the price is prices.gib_month")]),
    safe,
    totals.waiting_bytes.as_of_ms === null ? fact("unknown", "how much waits", "a size run measures it")
      : fact(bytes(totals.waiting_bytes.value), `${totals.waiting_bytes.value === 1 ? "waits" : "wait"}${totals.unmeasured_partitions ? ` at least: of ${whole(totals.unmeasured_partitions)} ${totals.unmeasured_partitions === 1 ? "partition" : "partitions"} it is not known` : ""}${since(totals.waiting_bytes)}`, ago(totals.waiting_bytes.as_of_ms, found.as_of_ms)),
    ...(waits.value > 0 ? [fact(duration(waits.value), "is the age of the oldest segment that waits", `by its newest record, ${ago(waits.as_of_ms, found.as_of_ms)}`)] : []),
    ...(found.paused_topics.length || !found.stopped_pools.length ? [fact(paused, "paused", "", found.paused_topics.length ? "odd" : "")] : []),
    ...(found.stopped_pools.length ? [fact("0 slots", `in ${found.stopped_pools.join(", ")}`, "nothing of it begins", "odd")] : []),
    findings || isAudited ? fact(whole(findings), `${findings === 1 ? "finding" : "findings"}${isAudited ? since(totals.findings) : ", without an audit"}`, "failed segments, and open findings of audits", findings ? "bad" : "")
      : fact("no", "audit yet", "an audit of the store says what is missing there, and what is too much"),
    fact(whole(alarms), alarms === 1 ? "alarm" : "alarms", "", alarms ? "bad" : ""));
}

function say() {
  const age = Date.now() - readAt;
  const stale = present && age > 3 * EVERY_MS ? `These numbers are ${duration(age / 1000)} old. ` : "";
  const text = stale + wrong;
  state.hidden = !text;
  if (state.textContent !== text) state.textContent = text;
}

function empty() {
  return element("section", { class: "panel" }, element("h2", {}, "Nothing is tiered yet"),
    element("p", {}, "Name topics in the setting topics.include, or in the form of ", link("/dags/tiering_copy", "tiering_copy"), ", and trigger that DAG. What it copies appears here."),
    element("p", {}, "Before that, ", element("code", {}, "./tiering ready"), " says what is missing, and ", element("code", {}, "./tiering plan"), " what would be copied."));
}

function draw() {
  if (current !== "now" || !present) return;
  // Drawn anew only if a number or the width changed, or an age in minutes may have.
  const key = JSON.stringify([window.innerWidth, { ...present, as_of_ms: Math.floor(present.as_of_ms / 60000) }, throughput.content, throughput.error]);
  if (key === shown) return;
  shown = key;
  const focused = document.activeElement?.id;
  const open = view.querySelector("details")?.open;
  const made = now(present, throughput, pause);
  const isEmpty = present.totals.segments === 0 && !present.batches.some((batch) => batch.planned_bytes > 0);
  view.replaceChildren(...(isEmpty ? [empty(), made] : [made]));
  if (open && view.querySelector("details")) view.querySelector("details").open = true;
  if (focused && focused !== "view") document.getElementById(focused)?.focus();
}

async function readThroughput() {
  if (performance.now() - throughput.askedAt < THROUGHPUT_EVERY_MS) return;
  throughput.askedAt = performance.now();
  try {
    throughput.content = await ask("throughput?hours=6");
    throughput.error = null;
  } catch (error) {
    throughput.error = error.message;
  }
}

async function read() {
  try {
    present = await ask("now");
    readAt = Date.now();
    wrong = "";
    firstLine(present);
  } catch (error) {
    wrong = error.message;
    if (!present) {
      facts.replaceChildren(element("li", {}, "No number is known."));
      if (current === "now") view.replaceChildren(element("p", { class: "panel bad", role: "alert" }, `The present state cannot be read: ${error.message}`));
    }
  }
  say();
}

async function pause(topic, paused) {
  const what = topic === null ? "all topics" : topic;
  try {
    await setPause(topic, paused);
    await read();
  } catch (error) {
    wrong = `${what}: ${paused ? "not paused" : "not resumed"}: ${error.message}`;
    say();
  }
  draw();
}

// The address may be typed by hand.
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function choose() {
  const [, asked, name = ""] = /^#(needs|quality|backfill|topics|topic|retention|limits|runbook)(?:\/(.*))?$/.exec(location.hash) ?? [];
  current = asked ?? "now";
  for (const each of document.querySelectorAll("nav a")) {
    if (each.dataset.view === current.replace(/^(topic|retention)$/, "topics")) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  shown = "";
  if (current === "topics") topics(view);
  else if (current === "topic") topic(view, decoded(name));
  else if (current === "retention") retention(view, decoded(name));
  else if (current === "backfill") backfill(view);
  else if (current === "needs") needs(view);
  else if (current === "quality") quality(view);
  else if (current === "limits") limits(view, name.split("/").map(decoded));
  else if (current === "runbook") runbook(view, decoded(name));
  else if (present) draw();
  else view.replaceChildren(element("p", { class: "dim" }, "Loading…"));
}

async function again() {
  try {
    if (!document.hidden) {
      theme();
      await Promise.all([read(), current === "now" ? readThroughput() : null]);
      draw();
    }
  } finally {
    setTimeout(again, EVERY_MS);
  }
}

// The entry of the navigation shows all topics; only the browser's own Back keeps what was searched for.
document.querySelector("nav a[data-view=topics]").addEventListener("click", () => {
  showAll();
  if (location.hash === "#topics") choose();
});
window.addEventListener("hashchange", () => {
  if (location.hash !== "#view") choose();
});
theme();
choose();
again();
