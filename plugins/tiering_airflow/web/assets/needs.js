// What waits for a person, each with its entry of the runbook and what can be done about it here.
import { action, decisions } from "./decisions.js";
import { advice, ago, ask, askAirflow, bytes, confirmed, duration, element, kept, link, moment, panel, runbook, spoken, table, whole } from "./parts.js";

const DECIDED_BY_A_SKIP = ["hole", "lost", "failed-again", "compacted"];
const entry = (address) => element("p", { class: "dim" }, "What to do: ", runbook(address));
const nothing = (text) => element("p", { class: "dim" }, text);
const more = (number) => (number ? nothing(`${whole(number)} more are not shown.`) : null);

export function needs(view) {
  const status = element("p", { class: "dim", role: "status" }, "Loading…");
  const said = element("p", { role: "status" });
  const parts = element("div", { class: "panels" });
  let found = null;
  const { act, trigger, run, ofFailed, ofFinding, skip, form } = decisions(said, load, () => found.may);

  async function load() {
    try {
      found = await ask("attention");
      status.textContent = `${found.total ? `${whole(found.total)} ${found.total === 1 ? "thing needs" : "things need"} a person` : found.planned_at_ms === null || found.audited_at_ms === null ? "Nothing is known to need a person" : "Nothing needs a person"}, as of ${moment(found.as_of_ms)}.`;
      parts.replaceChildren(...guards(), ...pools(), approvals(), failed(), findings(), partitions(), handovers());
    } catch (error) {
      status.textContent = found ? `These lines are of ${moment(found.as_of_ms)}; they cannot be read again: ${error.message}` : `What needs a person cannot be read: ${error.message}`;
    }
  }

  function guards() {
    const each = (guard) => element("p", { class: "bad" }, element("b", {}, guard.guard), `: ${guard.message}`);
    return found.guards.length ? [wide("Nothing is deleted", ...found.guards.map(each), entry(found.guards[0].runbook))] : [];
  }

  function pools() {
    const each = (pool) => element("p", {}, element("b", { class: "odd" }, "Nothing begins"), `: ${pool.message} Give it slots: `, link("/pools", pool.pool), ", in Airflow's Admin, Pools.");
    return found.stopped_pools.length ? [wide("Pools without slots", ...found.stopped_pools.map(each), entry(found.stopped_pools[0].runbook))] : [];
  }

  function approvals() {
    const cut = (change) => element("li", {}, `${change.author}, ${moment(change.changed_at_ms)}: ${change.name} ${kept(change.name, change.old_value)} → ${kept(change.name, change.new_value)}`);
    const age = (topic) => (topic.oldest_ms === null ? "–" : `${duration((found.as_of_ms - topic.newest_ms) / 1000)} to ${duration((found.as_of_ms - topic.oldest_ms) / 1000)}`);
    const answer = (approval, option) => act(`${option} plan ${approval.plan_hash.slice(0, 12)}`,
      () => askAirflow(`/dags/${encodeURIComponent(approval.dag_id)}/dagRuns/${encodeURIComponent(approval.dag_run_id)}/taskInstances/approval/-1/hitlDetails`, { chosen_options: [option], params_input: {} }, "PATCH"),
      () => `${approval.headline} ${option}, as Airflow recorded it. ${approval.dag_id} goes on.`);
    const each = (approval) => element("article", { class: "item" },
      element("h3", {}, approval.headline),
      element("p", { class: "dim" }, `Asked ${approval.shown_at_ms === null ? "" : `${duration((found.as_of_ms - approval.shown_at_ms) / 1000)} ago `}in `, link(`/dags/${encodeURIComponent(approval.dag_id)}/runs/${encodeURIComponent(approval.dag_run_id)}`, `${approval.dag_id} ${approval.dag_run_id}`), `, plan ${approval.plan_hash}.`),
      approval.topics.length ? table(approval.headline, [
        ["Topic", (topic) => element("a", { href: `#topic/${encodeURIComponent(topic.topic)}` }, topic.topic), "name"],
        ["Partitions", (topic) => whole(topic.partitions), "number"],
        ["Segments", (topic) => whole(topic.segments), "number"],
        ["Bytes", (topic) => bytes(topic.bytes), "number"],
        ["Age of the data", age, "number"],
        ["Who cut its retention", (topic) => (topic.cuts.length ? element("ul", { class: "plain" }, topic.cuts.map(cut)) : "nobody, by a config of this topic"), "name"],
      ], approval.topics) : null,
      more(approval.more_topics),
      found.may.answer.includes(approval.dag_id)
        ? element("p", { class: "row" },
          confirmed("Approve…", `Approve: ${approval.headline}`, () => answer(approval, "Approve"), `Approve: ${approval.headline}`),
          confirmed("Reject…", "Reject: delete nothing by this plan", () => answer(approval, "Reject"), `Reject: ${approval.headline}`))
        : nothing(`To answer takes the permission to edit the required actions of ${approval.dag_id}, and to be among its approvers.`),
      entry(approval.runbook));
    return wide("Approvals", found.approvals.length ? found.approvals.map(each) : nothing("No plan waits for an answer."));
  }

  function failed() {
    const fate = (copy) => (copy.lost_because ? `lost: ${copy.lost_because}` : "the next copy replaces it, if the source still has it");
    const rows = table("Failed segments", [
      ["Partition", (copy) => `${copy.topic}-${copy.partition}`, "name"],
      ["Offsets", (copy) => `${copy.start_offset} to ${copy.end_offset}`],
      ["Bytes", (copy) => bytes(copy.bytes), "number"],
      ["What was found", (copy) => [copy.detail, copy.rules.length ? element("div", { class: "dim" }, copy.rules.join(", ")) : null], "name"],
      ["What becomes of it", fate, "name"],
      ["Runbook", (copy) => runbook(copy.runbook), "name"],
      ["Actions", ofFailed],
    ], found.failed);
    return wide("Failed segments", found.failed.length ? [rows, more(found.more_failed)] : nothing("No segment that failed its verification stops a partition."));
  }

  function findings() {
    const rows = table("Findings of audits", [
      ["Kind", (row) => row.kind],
      ["Object", (row) => element("code", {}, row.key), "name"],
      ["Bytes", (row) => bytes(row.bytes), "number"],
      ["What", (row) => row.message, "name"],
      ["Seen", (row) => ago(row.last_seen_ms, found.as_of_ms)],
      ["What to do", (row) => advice(row.advice), "name"],
      ["Actions", ofFinding],
    ], found.findings);
    const who = found.may.accept || !found.findings.length ? null : nothing("To accept a finding takes the permission to edit the DAG tiering_audit.");
    return wide("Findings of audits", found.findings.length ? [rows, more(found.more_findings), who, entry(found.findings[0].runbook)] : nothing(found.audited_at_ms === null ? "Not known: no audit has compared the store with the metadata yet." : "No finding of an audit is open."));
  }

  function partitions() {
    const rows = found.held.map((group) => element("li", {},
      element("b", {}, `${whole(group.partitions)} ${group.partitions === 1 ? "partition" : "partitions"}`), `: ${group.reason_message}. `,
      element("span", { class: "dim" }, group.topics.map((topic, number) => [number ? ", " : "", element("a", { href: `#topic/${encodeURIComponent(topic)}` }, topic)]), `${group.more_topics ? ` and ${group.more_topics} more topics` : ""}; ${ago(group.as_of_ms, found.as_of_ms)}. `),
      group.advice ? ["What to do: ", advice(group.advice), " "] : null,
      found.may.skip && DECIDED_BY_A_SKIP.includes(group.reason) ? action("Continue without offsets…", `Continue ${group.topics[0]} without offsets: ${group.reason_message}`, () => skip({ topic: group.topics[0] })) : null));
    return wide("Held partitions", rows.length ? [element("ul", { class: "plain" }, rows), entry(found.held[0].runbook)] : nothing(found.planned_at_ms === null ? "Not known: no copy was planned yet." : "The last plan of all topics left nothing to a person."), form);
  }

  function handovers() {
    // The DAG begins another handover if this one has ended, for example because another person undid it meanwhile.
    const goOn = async (each) => {
      const words = `Continue the handover of ${each.topic}`;
      const { handovers: now } = await ask("attention").catch(() => ({ handovers: [] }));
      if (now.some((one) => one.handover_id === each.handover_id)) await trigger("tiering_handover", { topic: each.topic }, words);
      else await act(words, () => Promise.reject(new Error("it does not stand still any more, or Airflow does not answer: look at it again")), String);
    };
    const rows = found.handovers.map((each) => element("li", {}, `${spoken(each.message)} `,
      run("tiering_handover") ? confirmed("Continue…", `Continue the handover of ${each.topic}`, () => goOn(each), `Continue the handover of ${each.topic}`) : null));
    return wide("Handovers", rows.length ? [element("ul", { class: "plain" }, rows), entry(found.handovers[0].runbook)] : nothing("No handover stands still."));
  }

  view.replaceChildren(element("p", { class: "row" }, status, action("Read again", "Read again what needs a person", load)), said, parts);
  load();
}

function wide(title, ...content) {
  const made = panel(title, ...content.flat(Infinity).filter(Boolean));
  made.classList.add("wide");
  return made;
}
