// One topic: what it is, how it grew, why it waits, its partitions, failed segments, configs and who changed them.
import { amount, decisions } from "./limits.js";
import { timeline } from "./timeline.js";
import { advice, ask, bytes, chartWidth, clock, drawn, duration, element, moment, panel, retentionOf, runbook, table, whole } from "./parts.js";

const HEIGHT = 160;
const LEFT = 84;

export async function topic(view, name) {
  // The answer may come when another view is shown already.
  const content = element("div", {}, element("p", { class: "dim", role: "status" }, "Loading…"));
  view.replaceChildren(element("p", {}, element("a", { href: "#topics" }, "All topics")), content);
  try {
    const found = await ask(`topic?${new URLSearchParams({ name })}`);
    const isWaiting = found.topics.some((row) => row.waiting_segments);
    const waits = isWaiting ? await ask(`backfill?${new URLSearchParams({ topic: name })}`).then(({ topics }) => topics[0], () => null) : null;
    content.replaceChildren(details(found, waits));
  } catch (error) {
    content.replaceChildren(element("p", { class: "panel bad", role: "alert" }, `${name}: ${error.message}`));
  }
}

function details(found, waits) {
  const { configs } = found;
  const several = found.topics.length > 1 ? element("p", { class: "odd" }, `${found.topics.length} topics have or had this name.`) : null;
  const none = found.topics.length ? null : element("ul", { class: "plain" }, fact("Remote", "nothing was copied yet"), fact("Owner", "nobody yet: the platform takes it with the first copy"), fact("Held back", `${whole(found.never_copied)} ${found.never_copied === 1 ? "partition" : "partitions"}, as of the last plan`), fact("Waits", "not known how much: a size run measures what the platform owns"), element("li", {}, element("b", {}, "Offsets"), ": only the log directories have them: ", element("code", {}, `./tiering doctor ${found.topic}`)));
  const about = panel(found.topic, several, none, found.topics.map((row) => element("ul", { class: "plain" },
    fact("Topic id", row.topic_id), fact("Owner", row.owner),
    fact("Remote", row.partitions === 0 ? "nothing was copied yet" : `${bytes(row.finished_bytes)} in ${whole(row.segments)} segments of ${whole(row.partitions)} ${row.partitions === 1 ? "partition" : "partitions"} of which a copy has begun${row.stored_bytes === row.finished_bytes ? "" : `; ${bytes(row.stored_bytes)} are stored and paid for, with what is being deleted`}`),
    fact("Waits", row.waiting_bytes === null ? "not known: no size run has read its log" : !row.waiting_segments ? "nothing, as of the last size run" : `${bytes(row.waiting_bytes)} in ${whole(row.waiting_segments)} segments, the newest record of the oldest segment is ${duration(row.waiting_seconds)} old, as of the last size run`),
    fact("Retention", retentionOf(row)),
    row.cost_per_month === null ? null : fact("Storage for a month", `${Number(row.cost_per_month).toFixed(2)} ${found.currency}`))));
  const why = panel("Why it waits",
    found.held_back.length ? element("ul", { class: "plain" }, found.held_back.map((each) => element("li", {}, `${each.reason_message}. `, each.advice ? ["What to do: ", advice(each.advice)] : null)))
      : element("p", { class: "dim" }, "The last plan of all topics held nothing of it back."),
    waits ? element("p", {}, "It waits for: ", element("b", {}, waits.waits_for.join("; ")), ". How long its copy takes: ", element("a", { href: "#backfill" }, "Backfill")) : null,
    found.held_back.some((each) => each.reason === "no-leader-replica") ? element("p", {}, "Which log directories cannot be read: ", element("a", { href: "#now" }, "Now"), ", below What waits, and why.") : null,
    element("p", { class: "dim" }, "Partition by partition: ", element("code", {}, `./tiering doctor ${found.topic}`)));
  const failed = found.failed.length ? [table("Failed segments", [
    ["Partition", (copy) => `${copy.topic}-${copy.partition}`, "name"],
    ["Offsets", (copy) => `${copy.start_offset} to ${copy.end_offset}`],
    ["Bytes", (copy) => bytes(copy.bytes), "number"],
    ["Segment", (copy) => element("code", {}, copy.segment_id)],
    ["What becomes of it", (copy) => (copy.given_up ? "given up by decision" : copy.was_left ? "of a history that was replaced" : copy.lost_because ? `lost: ${copy.lost_because}` : "the next run copies it again, if the source still has it")],
  ], found.failed), more(found.more_failed), element("p", {}, "What to do: ", runbook("docs/runbook.md#a-segment-failed-the-quality-gate"))]
    : element("p", { class: "dim" }, "No segment of it failed its verification.");
  const partitions = table("Partitions", [
    ["Partition", (each) => each.partition],
    ["Remote bytes", (each) => bytes(each.bytes), "number"],
    ...(found.partitions.some((each) => each.stored_bytes !== each.bytes) ? [["Stored, with what is being deleted", (each) => bytes(each.stored_bytes), "number"]] : []),
    ["Segments", (each) => whole(each.segments), "number"],
    ["By leader epoch", (each) => each.leader_epochs.map((epoch) => `${epoch.epoch}: ${bytes(epoch.bytes)} in ${whole(epoch.segments)}`).join(", ")],
  ], found.partitions);
  const values = table("Configs", [
    ["Config", (row) => element("code", {}, row.name), "name"],
    ["In force", (row) => amount(row.value, row.unit), "number"],
    ["From", (row) => row.source],
  ], configs.configs);
  const changes = configs.history.length ? table("Changes", [
    ["When", (change) => moment(change.changed_at_ms)], ["Who", (change) => change.author, "name"],
    ["Config", (change) => element("code", {}, change.name), "name"],
    ["Before", (change) => amount(change.old_value, change.unit)], ["After", (change) => amount(change.new_value, change.unit)],
  ], configs.history.slice().reverse()) : element("p", { class: "dim" }, "No config of it was changed yet.");
  return element("div", { class: "panels" }, about, why, wide("Stored bytes of the last 14 days", history(found.hours)),
    timeline(found), wide("Failed segments", failed), wide("Partitions", partitions, more(found.more_partitions)),
    panel("Configs", values, element("p", { class: "row" }, none ? null : element("a", { href: `#retention/${encodeURIComponent(found.topic)}` }, "Preview another retention"), element("a", { href: "#limits" }, "Change a limit"))), panel("Changes", changes),
    wide("What was decided and found", decisions(found.events), element("p", { class: "dim" }, "More of it: ", element("code", {}, `./tiering events --topic ${found.topic}`))));
}

const fact = (name, value) => element("li", {}, element("b", {}, name), `: ${value}`);
const more = (number) => (number ? element("p", { class: "dim" }, `${whole(number)} more are not shown.`) : null);

function wide(title, ...content) {
  const made = panel(title, ...content.flat());
  made.classList.add("wide");
  return made;
}

function history(hours) {
  const width = chartWidth();
  const known = hours.filter((hour) => hour.stored_bytes !== null);
  if (known.length < 2) return element("p", { class: "dim" }, "Fewer than two hours are known: size runs and expirations record the size.");
  const [first, last] = [known[0], known.at(-1)];
  const highest = Math.max(1, ...known.map((hour) => hour.stored_bytes)) * 1.05;
  const x = (at) => LEFT + ((at - first.began_ms) / (last.began_ms - first.began_ms)) * (width - LEFT - 4);
  const y = (number) => 8 + (1 - number / highest) * (HEIGHT - 32);
  const line = known.map((hour, number) => `${number ? "L" : "M"}${x(hour.began_ms)} ${y(hour.stored_bytes)}`).join("");
  const words = `${bytes(first.stored_bytes)} at ${moment(first.began_ms)}, ${bytes(last.stored_bytes)} at ${moment(last.began_ms)}.`;
  return element("div", {}, drawn("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": words },
    drawn("path", { class: "axis", d: `M${LEFT} ${y(0)}H${width}` }), drawn("path", { class: "stored", d: line }),
    drawn("text", { x: LEFT - 6, y: y(highest / 1.05) + 4, "text-anchor": "end" }, bytes(highest / 1.05)),
    drawn("text", { x: LEFT - 6, y: y(0) + 4, "text-anchor": "end" }, "0 B"),
    drawn("text", { x: LEFT, y: HEIGHT - 4 }, moment(first.began_ms)),
    drawn("text", { x: width, y: HEIGHT - 4, "text-anchor": "end" }, `${moment(last.began_ms).slice(0, 11)}${clock(last.began_ms)}`)),
    element("p", { class: "dim" }, words));
}
