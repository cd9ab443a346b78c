// The table of topics: the server searches, sorts and cuts it into pages.
import { advice, ask, bytes, duration, element, retentionOf as retention, table, whole } from "./parts.js";

const SIZE = 50;
const asked = { search: "", sort: "topic", descending: false, offset: 0 };

// Forget what was searched for.
export function showAll() {
  asked.search = "";
  asked.offset = 0;
}

const COLUMNS = [
  ["topic", "Topic", (row) => element("a", { href: `#topic/${encodeURIComponent(row.topic)}` }, row.topic), "name"],
  ["owner", "Owner", (row) => row.owner],
  ["finished_bytes", "Remote bytes", (row) => bytes(row.finished_bytes), "number"],
  ["segments", "Segments", (row) => whole(row.segments), "number"],
  ["partitions", "Partitions begun", (row) => whole(row.partitions), "number"],
  ["waiting_bytes", "Waits", (row) => bytes(row.waiting_bytes), "number"],
  ["waiting_seconds", "Age of oldest segment", (row) => duration(row.waiting_seconds), "number"],
  ["failed_segments", "Failed", (row) => whole(row.failed_segments), "number"],
  [null, "Held back", (row) => row.held_back.join(", ")],
  [null, "Retention", (row) => element("a", { href: `#retention/${encodeURIComponent(row.topic)}`, "aria-label": `${retention(row)}: preview another retention of ${row.topic}` }, retention(row))],
  ["cost_per_month", "A month", (row, currency) => (row.cost_per_month === null ? "–" : `${Number(row.cost_per_month).toFixed(2)} ${currency}`), "number"],
];

export function topics(view) {
  const status = element("p", { class: "dim", role: "status" }, "Loading…");
  const body = element("div");
  const csv = element("a", { class: "action", download: "tiering-topics.csv" }, "CSV");
  const prices = element("p", { class: "dim" });
  const pager = element("p", { class: "row pager" });
  let newest = 0;
  let timer;

  async function load() {
    const own = (newest += 1);
    csv.href = `topics.csv?${new URLSearchParams({ search: asked.search })}`;
    try {
      const page = await ask(`topics?${new URLSearchParams({ ...asked, limit: SIZE })}`);
      if (own !== newest) return;
      if (page.topics.length || !page.found) return show(page);
      // There are fewer topics than there were when the button was shown.
      asked.offset = SIZE * Math.floor((page.found - 1) / SIZE);
      await load();
    } catch (error) {
      if (own === newest) status.textContent = `Topics cannot be read: ${error.message}`;
    }
  }

  function sorted(name) {
    asked.descending = asked.sort === name ? !asked.descending : name !== "topic" && name !== "owner";
    asked.sort = name;
    asked.offset = 0;
    load().then(() => body.querySelector(`button[data-sort="${name}"]`)?.focus());
  }

  function head([text, , kind, name]) {
    const order = asked.sort === name ? (asked.descending ? "descending" : "ascending") : null;
    const arrow = order ? (asked.descending ? " ↓" : " ↑") : "";
    const content = name ? element("button", { type: "button", "data-sort": name, onclick: () => sorted(name) }, text + arrow) : text;
    return element("th", { role: "columnheader", scope: "col", class: kind, "aria-sort": order }, content);
  }

  function show(page) {
    const columns = COLUMNS.map(([name, text, cell, kind]) => [text, (row) => cell(row, page.currency), kind, name]);
    const never = page.never_copied.map((each) => element("li", {}, element("a", { href: `#topic/${encodeURIComponent(each.topic)}` }, each.topic), ": ",
      each.held_back.map((why) => [`${why.reason_message}. `, why.advice ? ["What to do: ", advice(why.advice), " "] : null])));
    body.replaceChildren(table("Topics", columns, page.topics, head),
      ...(never.length ? [element("h3", {}, "Nothing copied yet, and held back by the last plan"), element("ul", { class: "plain" }, never)] : []));
    const last = page.offset + page.topics.length;
    const all = element("button", { class: "action", type: "button", onclick: () => { showAll(); search.value = ""; load(); search.focus(); } }, "Show all topics");
    status.replaceChildren(page.found ? `Topics ${page.offset + 1} to ${last} of ${page.found}.` : never.length ? `Nothing is copied yet of ${page.never_copied.map((each) => each.topic).join(", ")}.` : asked.search ? "No topic has this in its name. Why a topic is not tiered: ./tiering doctor TOPIC." : "Nothing is tiered yet: no run has found a topic that is to be copied.",
      ...(asked.search ? [` Only those with “${asked.search}” in their name. `, all] : []));
    prices.textContent = page.gib_month === null ? "" : `A month is the price of storage alone, ${page.gib_month} ${page.currency} for a GiB and month (prices.gib_month); requests cost extra.`;
    pager.replaceChildren(
      element("button", { class: "action", disabled: page.offset === 0, onclick: () => move(-SIZE) }, "Previous"),
      element("button", { class: "action", disabled: last >= page.found, onclick: () => move(SIZE) }, "Next"));
  }

  function move(by) {
    asked.offset = Math.max(0, asked.offset + by);
    load();
  }

  const search = element("input", {
    class: "field", type: "search", id: "search", value: asked.search, maxlength: 249, autocomplete: "off",
    oninput: (event) => {
      asked.search = event.target.value;
      asked.offset = 0;
      clearTimeout(timer);
      timer = setTimeout(load, 250);
    },
  });
  view.replaceChildren(element("section", { class: "panel" },
    element("h2", {}, "Topics"),
    element("p", { class: "row" }, element("label", { for: "search" }, "Part of the name"), search, csv),
    status, body, pager,
    element("p", { class: "dim" }, "Bytes, segments and owners are of this moment; topics of which nothing is copied yet are listed, too, and partitions count once a copy of them has begun. What waits and what failed is as of the last size run and plan; “–” was never measured. The age of a segment is that of its newest record, and no waiting time. Retention is this platform's, by time and by bytes of a partition."), prices));
  load();
}
