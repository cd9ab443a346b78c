// Every config with its value in force, where that comes from, and a form that changes it; then who changed what.
import { ask, bytes, calmly, duration, element, moment, perSecond, table } from "./parts.js";

const UNLIMITED = 2 ** 63;
const SHOWN = {
  "bytes a second": perSecond,
  bytes,
  milliseconds: (number) => duration(number / 1000),
  seconds: duration,
  hours: (number) => duration(number * 3600),
  days: (number) => duration(number * 86400),
};

// `accepts` may have a word for the lowest number, such as "0 (unlimited)".
export function amount(value, unit, accepts = "") {
  if (value === null) return "not set";
  const [, lowest, word] = /(-?\d+) \(([^)]+)\)/.exec(accepts) ?? [];
  if (String(value) === lowest) return `${word} (${value})`;
  if (typeof value !== "number") return String(value);
  if (value >= UNLIMITED) return "unlimited";
  if (value === -1) return "-1";
  const exact = `${value}${unit ? ` ${unit}` : ""}`;
  return SHOWN[unit] && value >= 60 ? `${SHOWN[unit](value)} (${exact})` : exact;
}

// Sentences have names of configs and commands between backticks.
const prose = (text) => text.split("`").map((part, number) => (number % 2 ? element("code", {}, part) : part));
const entity = (row) => (row.entity_name === null ? `${row.entity_type}, default` : `${row.entity_type.replace(/s$/, "")} ${row.entity_name}`);

export const decisions = (events) => (events.length ? table("Events", [
  ["When", (event) => moment(event.occurred_at_ms)],
  ["Who", (event) => event.author, "name"],
  ["What", (event) => event.kind],
  ["About", (event) => event.subject, "name"],
  ["Detail", (event) => event.detail, "name"],
], events) : element("p", { class: "dim" }, "Nothing was decided yet."));

// The form is filled in for the config that the address names: type, name (empty: the default) and config.
export function limits(view, [entityType, entityName, wanted] = []) {
  let found = null;
  let search = "";
  const status = element("p", { class: "dim", role: "status" }, "Loading…");
  const form = element("div");
  const values = element("div");
  const changes = element("div");
  const events = element("div");

  async function load() {
    try {
      found = await ask("limits");
      status.textContent = [`${found.configs.length} configs.`, ...found.notes].join(" ");
      show();
      showEvents();
      if (!form.firstChild) offer(wanted ? { entity_type: entityType, entity_name: entityName || null, name: wanted } : null);
    } catch (error) {
      status.textContent = `Limits cannot be read: ${error.message}`;
    }
  }

  const meaning = (row) => found.meanings.find((each) => each.entity_type === row.entity_type && each.name === row.name);

  function show() {
    const rows = found.configs.filter((row) => `${row.name} ${entity(row)} ${meaning(row)?.sentence ?? ""}`.toLowerCase().includes(search));
    values.replaceChildren(table("Configs", [
      ["For", entity],
      ["Config", (row) => [element("code", {}, row.name), element("br"), element("span", { class: "dim" }, prose(meaning(row)?.sentence ?? ""))], "name"],
      ["In force", (row) => amount(row.value, row.unit, meaning(row)?.accepts), "number"],
      ["From", (row) => row.source],
      ["Action", (row) => (found.may.alter ? element("button", { class: "action", type: "button", "aria-label": `Change ${row.name} of ${entity(row)}`, onclick: () => offer(row) }, "Change") : null)],
    ], rows));
    changes.replaceChildren(found.history.length ? table("Changes", [
      ["When", (change) => moment(change.changed_at_ms)],
      ["Who", (change) => change.author, "name"],
      ["For", entity],
      ["Config", (change) => element("code", {}, change.name), "name"],
      ["Before", (change) => amount(change.old_value, meaning(change)?.unit, meaning(change)?.accepts), "number"],
      ["After", (change) => amount(change.new_value, meaning(change)?.unit, meaning(change)?.accepts), "number"],
    ], found.history.slice().reverse()) : element("p", { class: "dim" }, "Nothing was changed yet."));
  }

  function showEvents() {
    events.replaceChildren(decisions(found.events));
  }

  // The form; a change is made by its second button, which names it, because Airflow's frame allows no dialogs.
  function offer(row = null) {
    if (!found.may.alter) {
      form.replaceChildren(element("p", { class: "dim" }, "To change a value takes the permission to trigger the DAG tiering_configs."));
      return;
    }
    const types = [...new Set(found.meanings.map((each) => each.entity_type))];
    const type = element("select", { class: "field", id: "type" }, types.map((each) => element("option", { value: each }, each)));
    const name = element("input", { class: "field", id: "entity", maxlength: 255, autocomplete: "off", placeholder: "empty: the default of the type" });
    const config = element("select", { class: "field", id: "config" });
    const value = element("input", { class: "field", id: "value", maxlength: 100, autocomplete: "off" });
    const about = element("p", { class: "dim", id: "about" });
    const said = element("p", { role: "status" });
    const sure = element("p", { class: "row" });

    function choices() {
      const own = found.meanings.filter((each) => each.entity_type === type.value);
      const kept = config.value;
      config.replaceChildren(...own.map((each) => element("option", { value: each.name }, each.name)));
      if (own.some((each) => each.name === kept)) config.value = kept;
      explain();
    }
    function explain() {
      const each = found.meanings.find((one) => one.entity_type === type.value && one.name === config.value);
      about.replaceChildren(...(each ? prose(`${each.sentence} Accepted: ${each.accepts}${each.unit ? `, in ${each.unit}` : ""}.`) : []));
      sure.replaceChildren();
    }
    // A number without a unit is shown with what it means: 7 of retention.ms are milliseconds.
    function meant(wanted) {
      const each = found.meanings.find((one) => one.entity_type === wanted.entity_type && one.name === wanted.name);
      return each?.unit && /^\s*-?\d+\s*$/.test(wanted.value) ? amount(Number(wanted.value), each.unit, each.accepts) : wanted.value;
    }
    function confirm(removes) {
      const wanted = { entity_type: type.value, entity_name: name.value || null, name: config.value, value: removes ? null : value.value };
      const words = removes ? `Remove ${wanted.name}` : `Set ${wanted.name} to ${meant(wanted)}`;
      const make = element("button", { class: "action", type: "button", onclick: () => alter(wanted) }, `${words} for ${entity(wanted)}`);
      const close = () => { sure.replaceChildren(); value.focus(); };
      const deletes = wanted.entity_type === "topics" && wanted.entity_name !== null && /^retention\.(ms|bytes)$/.test(wanted.name);
      const preview = deletes ? ["What is beyond it is deleted by the next runs, and cannot be brought back: ", element("a", { href: `#retention/${encodeURIComponent(wanted.entity_name)}` }, "preview it"), ". "] : [];
      sure.replaceChildren(element("span", {}, preview, "Sure? "), make, element("button", { class: "action", type: "button", onclick: close }, "No"));
      sure.onkeydown = (event) => { if (event.key === "Escape") close(); };
      calmly(sure, make);
    }
    async function alter(wanted) {
      sure.replaceChildren();
      said.className = "dim";
      said.textContent = "Changing, and waiting until running workers use it…";
      try {
        said.textContent = (await ask("limits", wanted)).summary;
        said.className = "good";
        await load();
      } catch (error) {
        said.textContent = `Nothing was changed as far as is known: ${error.message}`;
        said.className = "bad";
      }
    }

    type.addEventListener("change", choices);
    config.addEventListener("change", explain);
    const label = (id, text) => element("label", { for: id }, text);
    form.replaceChildren(
      element("form", { class: "grid", onsubmit: (event) => { event.preventDefault(); if (value.value) confirm(false); } },
        label("type", "For"), type, label("entity", "Named"), name, label("config", "Config"), config,
        label("value", "New value"), value,
        element("span"), element("span", { class: "row" },
          element("button", { class: "action", type: "submit" }, "Set…"),
          element("button", { class: "action", type: "button", onclick: () => confirm(true) }, "Remove the value…"))),
      about, sure, said);
    if (row) {
      type.value = row.entity_type;
      name.value = row.entity_name ?? "";
    }
    choices();
    if (row) {
      config.value = row.name;
      explain();
      value.focus();
    }
  }

  const filter = element("input", {
    class: "field", type: "search", id: "filter", maxlength: 249, autocomplete: "off",
    oninput: (event) => {
      search = event.target.value.toLowerCase();
      if (found) show();
    },
  });
  view.replaceChildren(element("div", { class: "panels" },
    element("section", { class: "panel wide" }, element("h2", {}, "Change a limit"),
      element("p", { class: "dim" }, "Amounts such as 50MiB or 7d. The rules are those of ./tiering configs; running copies use a new quota within a second."), form),
    element("section", { class: "panel wide" }, element("h2", {}, "Limits"),
      element("p", { class: "row" }, element("label", { for: "filter" }, "Filter"), filter), status, values),
    element("section", { class: "panel wide" }, element("h2", {}, "Changes of configs and pools"), changes),
    element("section", { class: "panel wide" }, element("h2", {}, "Other decisions: pauses, approvals, owners, skipped offsets, accepted findings"), events)));
  load();
}
