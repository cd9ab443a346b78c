// A partition of a topic, segment by segment: what waits, is remote, verified, expired, skipped or missing.
import { ask, bytes, element, moment, panel, table, whole } from "./parts.js";

const KINDS = {
  waiting: "waits for a copy",
  copying: "is being copied",
  copied: "copied, without a verdict",
  verified: "verified",
  "verdict-expired": "verified long ago",
  failed: "failed",
  replaced: "replaced by another copy",
  deleting: "is being deleted",
  expired: "expired and deleted",
  skipped: "skipped by decision",
  gap: "missing",
};

export function timeline(found) {
  const content = element("div");
  const status = element("p", { class: "dim", role: "status" });
  const several = new Set(found.partitions.map((each) => each.topic_id)).size > 1;
  const choice = element("select", { class: "field", id: "timeline-partition", onchange: () => load(null) },
    found.partitions.map((each, number) => element("option", { value: number }, `${each.topic}-${each.partition}${several ? ` (${each.topic_id})` : ""}`)));
  let newest = 0;

  async function load(before) {
    const own = (newest += 1);
    const chosen = found.partitions[Number(choice.value)];
    status.textContent = "Loading…";
    try {
      const asked = new URLSearchParams({ topic: chosen.topic, topic_id: chosen.topic_id, partition: chosen.partition });
      if (before !== null) asked.set("before", before);
      const page = await ask(`segments?${asked}`);
      if (own === newest) show(page, before);
    } catch (error) {
      if (own === newest) status.textContent = `The segments cannot be read: ${error.message}`;
    }
  }

  function show(page, before) {
    const counts = new Map();
    for (const part of page.parts) counts.set(part.kind, (counts.get(part.kind) ?? 0) + 1);
    const waits = page.planned_at_ms === null ? "" : ` What waits is as of the plan of ${moment(page.planned_at_ms)}.`;
    status.textContent = `${before === null ? "The newest offsets" : `Offsets below ${before}`}; the log starts at offset ${page.log_start_offset}.${waits}`;
    const words = [...counts].map(([kind, number]) => `${whole(number)} ${KINDS[kind] ?? kind}`).join(", ");
    const strip = element("div", { class: "strip", role: "img", "aria-label": words },
      page.parts.map((part) => element("span", { class: `part ${part.kind}`, title: `${part.start_offset} to ${part.end_offset}: ${KINDS[part.kind] ?? part.kind}${part.bytes === null ? "" : `, ${bytes(part.bytes)}`}` })));
    const legend = element("p", { class: "legend" }, [...counts].map(([kind, number]) => element("span", {}, element("span", { class: `key part ${kind}` }), `${KINDS[kind] ?? kind}: ${whole(number)}`)));
    const rows = table("Segments", [
      ["State", (part) => element("span", {}, element("span", { class: `key part ${part.kind}` }), KINDS[part.kind] ?? part.kind)],
      ["Offsets", (part) => `${part.start_offset} to ${part.end_offset}`, "number"],
      ["Bytes", (part) => bytes(part.bytes), "number"],
      ["Newest record", (part) => (part.newest_ms === null ? "–" : moment(part.newest_ms))],
      ["Copied", (part) => (part.copied_at_ms === null ? "–" : moment(part.copied_at_ms))],
      ["Verdict of", (part) => (part.verdict_at_ms === null ? "–" : moment(part.verdict_at_ms))],
      ["Segment", (part) => (part.segment_id === null ? part.why || "–" : [element("code", {}, part.segment_id), part.why ? element("div", {}, part.why) : null]), "name"],
    ], page.parts.slice().reverse());
    const button = (text, to, disabled) => element("button", { class: "action", type: "button", disabled, onclick: () => load(to) }, text);
    content.replaceChildren(page.parts.length ? strip : element("p", { class: "dim" }, "No segment is known here."), legend,
      element("p", { class: "row" }, button("Older", page.older_before, page.older_before === null), button("Newest", null, before === null)),
      page.parts.length ? element("details", {}, element("summary", {}, "Segment by segment"), rows) : null);
  }

  if (!found.partitions.length) return wide("Timeline", element("p", { class: "dim" }, "No segment of it is in remote storage."));
  load(null);
  return wide("Timeline", element("p", { class: "row" }, element("label", { for: "timeline-partition" }, "Partition"), choice), status, content);
}

function wide(title, ...content) {
  const made = panel(title, ...content);
  made.classList.add("wide");
  return made;
}
