// What runs, how fast, what limits it, what waits and why.
import { chart } from "./chart.js";
import { advice, ago, ask, bytes, duration, element, link, panel, perSecond, runbook, spoken, table, whole } from "./parts.js";

const DAGS = { remote_log_copier: ["tiering_copy", ""], remote_log_expiration: ["tiering_expiration", "expire-"] };

export function now(found, throughput, pause) {
  return element("div", { class: "panels" },
    running(found, pause),
    section("Throughput of the last 6 hours", throughput, (each) => chart(each), "wide"),
    alarms(found), waiting(found), limits(found), pools(found));
}

// A part that may have failed while the rest is shown.
function section(title, part, show, kind = "") {
  const content = part.content ? show(part.content) : null;
  const wrong = part.error ? element("p", { class: "bad", role: "alert" }, `This part cannot be read: ${part.error}`) : null;
  const loading = !part.content && !part.error ? element("p", { class: "dim" }, "Loading…") : null;
  const made = panel(title, wrong, content, loading);
  if (kind) made.classList.add(kind);
  return made;
}

function running(found, pause) {
  const all = found.paused_topics.includes("*");
  const named = found.paused_topics.filter((topic) => topic !== "*");
  const buttons = found.may.pause
    ? [element("button", { class: "action", id: "pause-all", onclick: () => pause(null, !all) }, all ? "Resume all topics" : "Pause all topics"),
       ...named.map((topic) => element("button", { class: "action", onclick: () => pause(topic, false) }, `Resume ${topic}`))]
    : [element("span", { class: "dim" }, "To pause or resume takes the permission to edit the DAG tiering_copy.")];
  const state = all ? "All topics are paused." : named.length ? `Paused: ${named.join(", ")}.` : "Nothing is paused.";
  const stopped = found.stopped_pools.length ? element("span", { class: "odd" }, `${found.stopped_pools.length === 1 ? "The pool" : "The pools"} ${found.stopped_pools.join(", ")} ${found.stopped_pools.length === 1 ? "has" : "have"} 0 slots, so nothing of it begins.`) : null;
  const columns = [
    ["Partition", (batch) => batch.partition || "–", "name"],
    ["Done", (batch) => (batch.planned_bytes ? [bar(batch), ` ${bytes(batch.done_bytes)} of ${bytes(batch.planned_bytes)}`] : "–")],
    ["Rate", (batch) => (batch.planned_bytes ? perSecond(batch.bytes_per_second) : "–"), "number"],
    ["Time left", (batch) => duration(batch.seconds_left), "number"],
    ["Where", (batch) => `${batch.host}, process ${batch.pid}${batch.pool ? "" : " (command)"}`],
    ["Run", run, "name"],
  ];
  const copiers = found.pools.find((pool) => pool.name === "remote_log_copier");
  const idle = copiers?.slots === 0
    ? element("p", {}, element("b", { class: "odd" }, "Nothing is running"), ": the pool ", link("/pools", copiers.name), " has 0 slots, so no copy begins. Give it slots in Airflow's Admin, Pools.")
    : element("p", { class: "dim" }, "Nothing is running. ", link("/dags/tiering_copy", "tiering_copy"), " copies by its schedule, or when it is triggered.");
  const made = panel("Running", element("p", { class: "row" }, stopped && !all && !named.length ? stopped : [element("span", { class: all || named.length ? "odd" : "" }, state), stopped], buttons),
    found.batches.length ? [runs(found.batches), table("Running batches", columns, found.batches)] : idle);
  made.classList.add("wide");
  return made;
}

function bar(batch) {
  const share = Math.min(1, batch.done_bytes / batch.planned_bytes);
  return element("progress", { max: 1, value: share, "aria-label": `${batch.partition}: ${Math.round(share * 100)} % done` });
}

// One line for each run: its batches together.
function runs(batches) {
  const byRun = new Map();
  for (const batch of batches) byRun.set(batch.run_id, [...(byRun.get(batch.run_id) ?? []), batch]);
  const sum = (group, member) => group.reduce((total, batch) => total + batch[member], 0);
  return element("ul", { class: "plain" }, [...byRun.values()].map((group) => {
    const rate = sum(group, "bytes_per_second");
    const planned = sum(group, "planned_bytes");
    const left = Math.max(0, planned - sum(group, "done_bytes"));
    const said = `: ${group.length} running ${group.length === 1 ? "batch" : "batches"}`;
    // A batch that copies and deletes nothing, such as that of an audit, has no plan of bytes.
    if (!planned) return element("li", {}, run(group[0]), `${said}.`);
    return element("li", {}, run(group[0]), `${said}, ${bytes(sum(group, "done_bytes"))} of ${bytes(planned)} of their plans done, ${perSecond(rate)}, ${rate > 0 ? `${duration(left / rate)} left at this rate` : "nothing is sent now"}`);
  }));
}

// A task that is tried again plans a run of its own, whose id ends in the number of the try.
function run({ run_id: id, pool }) {
  const [dag, prefix] = DAGS[pool] ?? [];
  if (!dag || !id.startsWith(prefix) || !id.includes("__")) return id;
  return link(`/dags/${dag}/runs/${encodeURIComponent(id.slice(prefix.length).replace(/\.\d+$/, ""))}`, id);
}

function alarms(found) {
  const rows = found.alarms.map((alarm) => element("li", {},
    element("b", { class: alarm.severity === "critical" ? "bad" : "odd" }, alarm.severity), ` ${spoken(alarm.sentence)} `,
    element("span", { class: "dim" }, `(${ago(alarm.as_of_ms, found.as_of_ms)}) `), "What to do: ", runbook(alarm.runbook)));
  for (const { alert, alarms: more } of found.more_alarms) rows.push(element("li", { class: "dim" }, `${alert} holds for ${whole(more)} more, with values no higher than these.`));
  return panel("Alarms", rows.length ? element("ul", { class: "plain" }, rows) : element("p", { class: "dim" }, "No rule of monitoring/alerts.yaml that can be decided now holds."));
}

function waiting(found) {
  const rows = found.waiting.map((group) => element("li", {},
    element("b", {}, `${whole(group.partitions)} ${group.partitions === 1 ? "partition" : "partitions"}`), `: ${group.reason_message}. `,
    element("span", { class: "dim" }, group.topics.map((topic, number) => [number ? ", " : "", element("a", { href: `#topic/${encodeURIComponent(topic)}` }, topic)]), `${group.more_topics ? ` and ${group.more_topics} more topics` : ""}; ${ago(group.as_of_ms, found.as_of_ms)}. `),
    group.advice ? ["What to do: ", advice(group.advice)] : null));
  for (const each of found.unreadable_log_dirs) rows.push(element("li", {}, element("b", { class: "odd" }, "Not readable"), `: log directory ${each.log_dir} of broker ${each.broker_id}. `, element("span", { class: "dim" }, `${ago(each.as_of_ms, found.as_of_ms)}. `), "Mount its disk, or correct the setting log_dirs."));
  const nothing = element("p", { class: "dim" }, "The last plan of all topics held nothing back.");
  return panel("What waits, and why", rows.length ? element("ul", { class: "plain" }, rows) : nothing);
}

function limits(found) {
  const amount = (limit, number) => (number === null ? "not known" : limit.kind === "delete" ? `${number.toFixed(1)} requests/s` : perSecond(number));
  const scope = (limit) => `${limit.kind}, ${limit.level}${limit.level === "total" ? "" : ` ${limit.entity || "default"}`}`;
  const columns = [
    ["Quota", scope, "name"],
    ["In force", (limit) => amount(limit, limit.per_second), "number"],
    ["Last minute", (limit) => amount(limit, limit.rate), "number"],
    ["Limits now", (limit) => (limit.limits ? element("b", { class: "odd" }, "yes: senders wait for it") : "no")],
  ];
  const nothing = element("p", { class: "dim" }, "No quota is set: nothing limits copies but the store and the network.");
  return panel("Quotas in force", found.limits.length ? table("Quotas in force", columns, found.limits) : nothing);
}

function pools(found) {
  const slots = (pool) => (pool.slots === null ? "not known" : pool.slots === -1 ? "unlimited" : whole(pool.slots));
  const columns = [
    ["Pool", (pool) => link("/pools", pool.name), "name"],
    ["Running batches", (pool) => whole(pool.live_batches.length), "number"],
    ["Slots", slots, "number"],
    ["State", (pool) => (pool.slots === 0 ? element("b", { class: "odd" }, "0 slots: nothing begins") : pool.slots !== null && pool.slots > 0 && pool.live_batches.length >= pool.slots ? "full" : "")],
    ["Slots read", (pool) => (pool.seen_at_ms === null ? "never" : found.as_of_ms - pool.seen_at_ms < 60000 ? "within a minute" : ago(pool.seen_at_ms, found.as_of_ms)), "number"],
  ];
  return panel("Pools", table("Pools", columns, found.pools));
}

export const setPause = (topic, paused) => ask("pause", { topic, paused });
