// What another retention of a topic would delete, and when, before it is set: a slider and a field for each limit.
import { ask, bytes, confirmed, duration, element, kept, panel, table, whole } from "./parts.js";

const HOUR = 3600e3;
const DAY = 24 * HOUR;
const FOR_EVER = -1;
const LIMITS = [
  { name: "retention.ms", parameter: "retention_ms", title: "By time", written: (value) => (value % HOUR ? String(value) : value % DAY ? `${value / HOUR}h` : `${value / DAY}d`),
    steps: [HOUR, 6 * HOUR, 12 * HOUR, ...[1, 2, 3, 5, 7, 14, 21, 30, 45, 60, 90, 120, 180, 270, 365, 730, 1095, 1825, 3650].map((days) => days * DAY), FOR_EVER] },
  { name: "retention.bytes", parameter: "retention_bytes", title: "By bytes of a partition", written: (value) => bytes(value).replace(".0 ", ""),
    steps: [...Array.from({ length: 33 }, (_, number) => 2 ** (12 + number)), FOR_EVER] },
];
const text = (limit, value) => kept(limit.name, value);
const nearest = (steps, value) => (value === null ? steps.length - 1 : Math.max(0, steps.findLastIndex((step) => step !== FOR_EVER && step <= value)));

export function retention(view, topic) {
  const back = element("p", {}, element("a", { href: `#topic/${encodeURIComponent(topic)}` }, topic));
  const status = element("p", { class: "dim", role: "status" }, "Loading…");
  const said = element("p", { role: "status", tabindex: "-1" });
  const results = element("div", { class: "panels" });
  const fields = LIMITS.map(control);
  const less = element("span", { class: "row" });
  const partitions = element("input", { class: "field", id: "partitions", maxlength: 1000, autocomplete: "off", placeholder: "empty: the first ones", oninput: later });
  let timer = null;
  let newest = 0;

  function control(limit) {
    const slider = element("input", { type: "range", id: `${limit.parameter}-slider`, min: 0, max: limit.steps.length - 1, step: 1, "aria-label": `${limit.name}, as a slider` });
    const field = element("input", { class: "field", id: limit.parameter, maxlength: 40, autocomplete: "off", "aria-label": `${limit.name}, as 7d or 50GiB` });
    const words = element("output", { for: limit.parameter });
    const made = { ...limit, slider, field, words, present: null };
    slider.addEventListener("input", () => {
      const value = limit.steps[slider.value];
      field.value = value === FOR_EVER ? value : limit.written(value);
      slider.setAttribute("aria-valuetext", text(limit, value));
      later();
    });
    field.addEventListener("input", later);
    return made;
  }

  // "What would 30 days less save?" without arithmetic.
  function shorter(found) {
    const present = found.present.retention_ms;
    less.replaceChildren(...[7, 30].filter((days) => present !== null && present > days * DAY).map((days) => element("button", { class: "action", type: "button", onclick: () => {
      fields[0].field.value = LIMITS[0].written(present - days * DAY);
      load();
    } }, `${days} days less`)));
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(load, 300);
  }

  async function load() {
    const own = (newest += 1);
    const asked = new URLSearchParams({ topic, partitions: partitions.value });
    for (const each of fields) asked.set(each.parameter, each.field.value.trim());
    try {
      const found = await ask(`retention?${asked}`);
      if (own === newest) show(found);
    } catch (error) {
      if (own !== newest) return;
      status.className = "bad";
      status.textContent = `No preview: ${error.message}`;
      results.replaceChildren();
    }
  }

  function show(found) {
    shorter(found);
    status.className = "dim";
    status.textContent = `${whole(found.partitions.length)} ${found.partitions.length === 1 ? "partition" : "partitions"} of ${found.topic}${found.more_partitions ? `; ${whole(found.more_partitions)} more are left out: name them in the field` : ""}. Nothing is set yet.`;
    for (const each of fields) {
      const value = found.asked[each.parameter];
      each.slider.value = value === null ? each.steps.length - 1 : nearest(each.steps, value);
      each.slider.setAttribute("aria-valuetext", text(each, value));
      each.words.textContent = `${text(each, value)}; at present ${text(each, found.present[each.parameter])}`;
    }
    const remote = found.partitions.reduce((sum, each) => sum + each.remote_bytes, 0);
    const share = (number) => (remote ? ` (${Math.round((1000 * number) / remote) / 10} %)` : "");
    const when = (horizon) => (horizon.in_ms ? `in ${duration(horizon.in_ms / 1000)}` : "with the next run");
    const gone = table("Gone by then", [
      ["When", when],
      ["Segments gone by the new values", (horizon) => whole(horizon.segments), "number"],
      ["Bytes gone by the new values", (horizon) => bytes(horizon.bytes) + share(horizon.bytes), "number"],
      ["By the present values", (horizon) => bytes(horizon.present_bytes) + share(horizon.present_bytes), "number"],
      ["Difference", (horizon) => bytes(horizon.bytes - horizon.present_bytes), "number"],
      ["Saved a month", (horizon) => (horizon.saved_per_month === null ? "no price is set" : `${Number(horizon.saved_per_month).toFixed(2)} ${found.currency}`), "number"],
    ], found.horizons);
    const loses = found.partitions.filter((each) => each.segments);
    const ofEach = table("Partitions", [
      ["Partition", (each) => each.partition],
      ["Remote bytes", (each) => bytes(each.remote_bytes), "number"],
      ["Segments that go", (each) => whole(each.segments), "number"],
      ["Bytes that go", (each) => bytes(each.bytes), "number"],
      ["Log start offset", (each) => `${each.log_start_before} → ${each.log_start_offset}`, "number"],
    ], loses);
    const notes = [...found.waiting.map((each) => `${each.topic}-${each.partition}: ${each.reason_message}: ${each.detail}`), ...found.unknowns.map((each) => `${each.topic}-${each.partition}: ${each.message}`)];
    const changed = fields.filter((each) => found.asked[each.parameter] !== found.present[each.parameter]);
    const { segments, bytes: deleted, present_bytes: anyway } = found.horizons[0];
    const counted = found.more_partitions ? "Of these partitions alone, the" : "The";
    const unseen = found.more_partitions ? ` The value holds for ${whole(found.more_partitions)} more ${found.more_partitions === 1 ? "partition" : "partitions"}, too, of which nothing is known here.` : "";
    // No log directory is read for a preview.
    const more = found.asked.retention_bytes === null ? "" : " It may delete more: for retention.bytes, what is only on brokers counts, too, and is not known here.";
    const warning = segments ? `${counted} next run deletes ${whole(segments)} ${segments === 1 ? "segment" : "segments"}, ${bytes(deleted)}${share(deleted)}${changed.length > 1 ? ", by both values together" : ""}${anyway ? `; ${bytes(anyway)} go by the present values` : ""}; what is deleted cannot be brought back.${more}${unseen} Sure?` : `${counted} next run deletes nothing by it.${more}${unseen} Sure?`;
    const buttons = changed.map((each) => {
      const value = found.asked[each.parameter] ?? FOR_EVER;
      const words = `Set ${each.name} of ${found.topic} to ${text(each, value)}`;
      return confirmed(`${words}…`, words, () => set(each, value), `${words}…`, warning);
    });
    results.replaceChildren(
      wide("What would go, and when", gone, element("p", { class: "dim" }, `The difference is what another retention deletes more, and what is saved is its price of storage alone${found.gib_month === null ? "" : `, ${found.gib_month} ${found.currency} for a GiB and month`}; the last row is what is saved in the end. Later times assume that nothing more is copied.`), element("p", { class: found.needs_approval ? "odd" : "" }, found.approval)),
      wide("Of each partition, with the next run", loses.length ? ofEach : element("p", { class: "dim" }, found.more_partitions ? "Nothing of these would go." : "Nothing would go.")),
      ...(notes.length ? [wide("Why less is deleted", element("ul", { class: "plain" }, notes.map((note) => element("li", {}, note))))] : []),
      wide("Set it", buttons.length ? (found.may.alter ? element("p", { class: "row" }, buttons) : element("p", { class: "dim" }, "To change a retention takes the permission to trigger the DAG tiering_configs.")) : element("p", { class: "dim" }, "These are the present values.")));
  }

  async function set(each, value) {
    said.className = "dim";
    said.textContent = `Setting ${each.name}…`;
    try {
      const done = await ask("limits", { entity_type: "topics", entity_name: topic, name: each.name, value: String(value) });
      said.className = "good";
      said.textContent = done.summary;
      await load();
      said.focus();
    } catch (error) {
      said.className = "bad";
      said.textContent = `Nothing was changed as far as is known: ${error.message}`;
    }
  }

  view.replaceChildren(back, panel(`Another retention of ${topic}`,
    element("p", { class: "dim" }, "Nothing is set before you confirm it. An empty field is the present value; -1 is no limit. This is how long the platform keeps the topic in remote storage; retention.ms of the brokers is another config and stays as it is."),
    element("form", { class: "grid", onsubmit: (event) => { event.preventDefault(); load(); } },
      fields.map((each) => [element("label", { for: each.parameter }, each.title), element("span", { class: "row confirm" }, each.slider, each.field, each.words, each.name === "retention.ms" ? less : null)]),
      element("label", { for: "partitions" }, "Partitions"), partitions), status, said), results);
  load();
}

function wide(title, ...content) {
  const made = panel(title, ...content);
  made.classList.add("wide");
  return made;
}
