// What it takes to copy all that waits of the topics that are chosen; and starts, pauses and resumes that.
import { ago, ask, askAirflow, bytes, confirmed, duration, element, link, panel, perSecond, table, whole } from "./parts.js";

const least = (seconds, none) => (seconds === null ? none : `${duration(seconds)} at least`);
const money = (amount, currency) => (amount === null ? "no price is set" : `${Number(amount).toFixed(2)} ${currency}`);

const count = (number, what) => `${whole(number)} ${what}${number === 1 ? "" : "s"}`;

// What stops a copy, before how fast it is.
function holds(found) {
  const paused = found.topics.filter((topic) => topic.is_paused).map((topic) => topic.topic);
  const stops = [];
  if (found.copier_slots === 0) stops.push(["The pool ", link("/pools", "remote_log_copier"), " has 0 slots, so no copy begins: give it slots in Airflow's Admin, Pools."]);
  if (paused.length && found.topics.length) stops.push([`Paused: ${paused.join(", ")}.`]);
  return stops.map((stop) => element("li", {}, element("b", { class: "odd" }, "Held now"), ": ", stop));
}

// What the sums lack.
function unmeasured(found) {
  if (!found.unmeasured.length) return null;
  const topics = found.unmeasured.map((each, number) => [number ? "; " : "", element("a", { href: `#topic/${encodeURIComponent(each.topic)}` }, each.topic), ` (${count(each.partitions, "partition")})`]);
  return element("li", {}, element("b", {}, "Not counted, because it is not known how much waits"), ": ", topics);
}

export function backfill(view) {
  const status = element("p", { class: "dim", role: "status" }, "Loading…");
  const said = element("p", { role: "status" });
  const results = element("div", { class: "panels" });
  const quota = element("input", { class: "field", id: "other-quota", maxlength: 40, autocomplete: "off", placeholder: "such as 50MiB; 0: no quota", oninput: later });
  const chosen = new Set();
  let all = null;
  let timer = null;
  let newest = 0;

  function later() {
    clearTimeout(timer);
    timer = setTimeout(load, 300);
  }

  async function load() {
    const own = (newest += 1);
    try {
      // The list of choices has all topics; the numbers are those of the chosen ones.
      const listed = await ask("backfill");
      const asked = new URLSearchParams({ quota: quota.value.trim() });
      for (const topic of chosen) asked.append("topic", topic);
      const found = chosen.size || quota.value.trim() ? await ask(`backfill?${asked}`) : listed;
      if (own !== newest) return;
      all = listed;
      show(found);
    } catch (error) {
      if (own !== newest) return;
      status.className = "bad";
      status.textContent = `No plan: ${error.message}`;
    }
  }

  function show(found) {
    const oldest = Math.min(...all.topics.map((topic) => topic.as_of_ms));
    status.className = "dim";
    status.textContent = all.topics.length ? `What waits is ${ago(oldest, all.as_of_ms)}, by a size run that looked at the brokers' logs.`
      : all.unmeasured.length ? "Nothing waits of what a size run has measured."
      : "Nothing waits, or no size run has looked at the brokers' logs yet: trigger tiering_remote_log_sizes.";
    const focused = document.activeElement?.id;
    const box = (topic) => element("input", { type: "checkbox", id: `choose-${topic.topic}`, checked: chosen.has(topic.topic), "aria-label": `Choose ${topic.topic}`, onchange: (event) => { chosen[event.target.checked ? "add" : "delete"](topic.topic); load(); } });
    const names = [...chosen];
    const choices = table("Topics of which something waits", [
      ["Choose", box],
      ["Topic", (topic) => topic.topic, "name"],
      ["Waits", (topic) => bytes(topic.bytes), "number"],
      ["Segments", (topic) => whole(topic.segments), "number"],
      ["Age of oldest segment", (topic) => duration(topic.seconds), "number"],
      ["Own quota", (topic) => perSecond(topic.quota), "number"],
      ["Waits for", (topic) => topic.waits_for.join("; ")],
      ["Action", (topic) => (found.may.pause ? element("button", { class: "action", type: "button", "aria-label": `${topic.is_paused ? "Resume" : "Pause"} ${topic.topic}`, onclick: () => pause(topic) }, topic.is_paused ? "Resume" : "Pause") : null)],
    ], all.topics);
    const broker = found.has_broker_quotas ? " A quota of brokers is in force, too, and may make it longer." : "";
    const fact = (name, value) => element("li", {}, element("b", {}, name), ": ", value);
    const change = found.narrowest === null ? "#limits" : `#limits/${[...(found.narrowest.topic === null ? ["brokers", ""] : ["topics", found.narrowest.topic]), found.narrowest.config].map(encodeURIComponent).join("/")}`;
    const narrowest = found.narrowest === null ? "" : ` The narrowest is that of ${found.narrowest.topic === null ? "the total" : `topic ${found.narrowest.topic}`}, ${perSecond(found.narrowest.bytes_per_second)}.`;
    const facts = element("ul", { class: "plain" }, holds(found),
      fact("To copy", `${bytes(found.bytes)} in ${count(found.segments, "segment")} of ${count(found.topics.length + found.more_topics, "topic")}`),
      unmeasured(found),
      fact("Requests", `${whole(found.requests.put)} to write, ${whole(found.requests.get)} to read all of it once; large logs take more`),
      fact("Requests to write cost", found.cost === null ? "no price is set" : money(found.cost.writing, found.cost.currency)),
      fact("Storage of what waits, for a month", found.cost === null ? "no price is set" : money(found.cost.storage_per_month, found.cost.currency)),
      fact(`At the present quotas${found.copier_slots === 0 ? ", once copies begin" : ""}`, `${least(found.seconds, "no quota limits it")}.${narrowest} Total quota: ${found.quota === null ? "none" : perSecond(found.quota)}.${broker}`),
      found.topics.some((topic) => topic.is_copied) ? element("li", {}, "A copy runs: segments under way count as not copied here, as in the last size run. What its batches still have to do: ", element("a", { href: "#now" }, "Now"), ".") : null,
      found.is_asked ? fact(`At a total quota of ${found.asked_quota === null ? "none" : perSecond(found.asked_quota)}`, `${least(found.asked_seconds, "no quota limits it")}.${broker}`) : null,
      fact("Removable from brokers' disks afterwards", found.removable_bytes === null ? "not known: no size run has compared the tiers" : `${bytes(found.removable_bytes)}, as of the last size run. A copy frees nothing by itself: brokers delete by their retention, and after a handover by their local retention`),
      found.copier_slots === 0 ? null : fact(`At the rate of the last minute (${perSecond(found.rate)})`, found.rate_seconds === null ? "nothing was sent in it" : duration(found.rate_seconds)));
    const disks = table("Disks of log directories", [
      ["Broker", (disk) => disk.broker_id, "number"],
      ["Log directory", (disk) => element("code", {}, disk.log_dir), "name"],
      ["Free", (disk) => bytes(disk.free_bytes), "number"],
      ["Filled by", (disk) => (disk.filled_bytes_per_second === null ? "not known: it takes two size runs at least an hour apart" : `${perSecond(disk.filled_bytes_per_second)}, over ${duration(disk.over_seconds)}`), "number"],
      ["Full in", (disk) => (disk.seconds_left !== null ? duration(disk.seconds_left) : disk.filled_bytes_per_second === null ? "not known" : "it does not fill"), "number"],
      ["Read", (disk) => ago(disk.as_of_ms, found.as_of_ms)],
    ], found.disks);
    const start = names.length ? `Copy ${names.length === 1 ? names[0] : `${names.length} topics`} now` : "Copy all configured topics now";
    const action = found.may.start ? confirmed(`${start}…`, start, begin) : element("p", { class: "dim" }, "To start a copy takes the permission to trigger the DAG tiering_copy.");
    results.replaceChildren(wide("Choose topics", all.topics.length ? choices : element("p", { class: "dim" }, all.unmeasured.length ? "Nothing waits of what was measured." : "Nothing waits."), all.topics.length ? element("p", { class: "dim" }, "The age of a segment is that of its newest record, and no waiting time.") : null, all.more_topics ? element("p", { class: "dim" }, `${whole(all.more_topics)} more are not shown.`) : null),
      wide(names.length ? `For ${names.join(", ")}` : "For all of them", all.topics.length ? facts : element("ul", { class: "plain" }, unmeasured(found)), element("p", { class: "row" }, action, element("a", { href: change }, found.narrowest === null ? "Set a quota" : "Change the narrowest quota"), element("a", { href: "#now" }, "Watch it"))),
      wide("When disks fill", found.disks.length ? disks : element("p", { class: "dim" }, "Not known: no size run could read a log directory on its own host, so their free space was not recorded.")));
    if (focused) document.getElementById(focused)?.focus();
  }

  async function act(what, request, words) {
    said.className = "dim";
    said.textContent = `${what}…`;
    try {
      const answer = await request();
      said.className = "good";
      said.replaceChildren(...words(answer));
    } catch (error) {
      said.className = "bad";
      said.textContent = `${what}: not done as far as is known: ${error.message}`;
    }
    await load();
  }

  const begin = () => act("Starting a copy", () => askAirflow("/dags/tiering_copy/dagRuns", { logical_date: null, conf: { topics: chosen.size ? [...chosen] : null } }),
    (run) => ["Started: ", link(`/dags/tiering_copy/runs/${encodeURIComponent(run.dag_run_id)}`, `tiering_copy ${run.dag_run_id}`), ". It begins when no other run of tiering_copy is active."]);
  const pause = (topic) => act(`${topic.is_paused ? "Resume" : "Pause"} ${topic.topic}`, () => ask("pause", { topic: topic.topic, paused: !topic.is_paused }),
    (answer) => [answer.paused_topics.length ? `Paused: ${answer.paused_topics.join(", ")}.` : "Nothing is paused."]);

  view.replaceChildren(panel("Plan a backfill", element("p", { class: "dim" }, "Nothing starts before you confirm it."),
    element("form", { class: "grid", onsubmit: (event) => { event.preventDefault(); load(); } }, element("label", { for: "other-quota" }, "At another total quota"), quota), status, said), results);
  load();
}

function wide(title, ...content) {
  const made = panel(title, ...content.filter(Boolean));
  made.classList.add("wide");
  return made;
}
