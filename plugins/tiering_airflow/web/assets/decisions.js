// What a person decides about failed segments and findings, wherever the page shows them.
import { ask, askAirflow, calmly, confirmed, element } from "./parts.js";

export const action = (text, label, onclick) => element("button", { class: "action", type: "button", "aria-label": label, onclick }, text);
// The server reads log directories and the store for a decision about offsets.
const READING_MS = 120000;
const nothing = (text) => element("p", { class: "dim" }, text);

// `said` gets the words about what became of an action; `load` reads everything again; `may` is what the user may do.
export function decisions(said, load, may) {
  const form = element("div");

  async function act(what, request, words) {
    said.className = "dim";
    said.textContent = `${what}…`;
    try {
      const answer = await request();
      said.className = "good";
      said.textContent = words(answer);
    } catch (error) {
      said.className = "bad";
      said.textContent = `${what}: not done as far as is known: ${error.message}`;
    }
    await load();
  }

  const trigger = (dag, conf, words) => act(words, () => askAirflow(`/dags/${dag}/dagRuns`, { logical_date: null, conf }), (run) => `${words}: ${dag} ${run.dag_run_id} was triggered.`);
  const run = (dag) => may().run.includes(dag);

  const verify = (topic) => (topic && run("tiering_quality") ? action("Verify again", `Verify the failed segments of ${topic} again`, () => trigger("tiering_quality", { topics: [topic], which: "failed" }, `Verify the failed segments of ${topic} again`)) : null);
  const copyAgain = (topic) => (topic && run("tiering_copy") ? action("Copy again", `Copy ${topic} again`, () => trigger("tiering_copy", { topics: [topic] }, `Copy ${topic} again`)) : null);

  function ofFailed(copy) {
    if (copy.given_up || copy.was_left) return null;
    return element("span", { class: "row" }, verify(copy.topic), copyAgain(copy.topic),
      may().skip && copy.lost_because ? action("Continue without it…", `Continue ${copy.topic}-${copy.partition} without offsets ${copy.start_offset} to ${copy.end_offset}`, () => skip(copy)) : null);
  }

  const REMOVED_BY_A_PLAN = ["orphan", "open-multipart-upload"];
  const MENDED_BY_A_COPY = ["dangling-reference", "size-mismatch"];

  function ofFinding(row) {
    const accept = () => act(`Accept finding ${row.finding_id}`, () => ask("accept", { finding_ids: [row.finding_id] }), (answer) => answer.summary);
    const only = row.kind === "adoptable" ? "It may be the only copy of its offsets: ./tiering adopt imports it. Once it is accepted, neither expirations nor ./tiering skip wait for it any more. Sure?" : "Sure?";
    const remove = () => trigger("tiering_audit", { delete_orphans: true }, "Plan the removal of orphans");
    return element("span", { class: "row" },
      MENDED_BY_A_COPY.includes(row.kind) ? [verifyAll(row.topic), copyAgain(row.topic)] : null,
      REMOVED_BY_A_PLAN.includes(row.kind) && run("tiering_audit") ? confirmed("Remove…", "Plan to remove all orphans, and ask for an approval", remove, `Plan the removal of finding ${row.finding_id}`) : null,
      may().accept ? confirmed("Accept…", `Leave finding ${row.finding_id} as it is`, accept, `Accept finding ${row.finding_id}`, only) : null);
  }

  const verifyAll = (topic) => (topic && run("tiering_quality") ? action("Verify again", `Verify all segments of ${topic} again`, () => trigger("tiering_quality", { topics: [topic], which: "all", depth: "shallow" }, `Verify all segments of ${topic} again`)) : null);

  // What can be skipped is found out by the server, which reads the log directories for it; then it is confirmed.
  function skip({ topic, topic_id: id = null, partition = 0 }) {
    const input = (name, value, attributes) => element("input", { class: "field", id: `skip-${name}`, value, autocomplete: "off", required: true, ...attributes });
    const name = input("topic", topic, { maxlength: 249 });
    const number = input("partition", partition, { type: "number", min: 0, max: 2 ** 31 - 1 });
    const reason = input("reason", "", { maxlength: 1000 });
    const asked = element("div", { role: "status" });
    const body = (confirm) => ({ topic: name.value, topic_id: name.value === topic ? id : null, partition: Number(number.value), reason: reason.value, confirm });
    const close = () => form.replaceChildren();

    async function question(confirm) {
      asked.replaceChildren(nothing("Reading the log directories and the store…"));
      try {
        const answer = await ask("skip", body(confirm), "POST", READING_MS);
        if (answer.question === null) {
          close();
          said.className = answer.recorded.length ? "good" : "dim";
          said.textContent = answer.summary;
          await load();
          return;
        }
        const sure = action("Continue without them", `Continue: ${answer.question}`, () => question(answer.confirm));
        asked.replaceChildren(element("p", { class: "odd" }, answer.question), element("p", { class: "row" }, sure, action("No", "Do not skip", close)));
        calmly(asked, sure);
      } catch (error) {
        asked.replaceChildren(element("p", { class: "bad" }, `${confirm === null ? "Nothing was decided" : "Not decided as far as is known"}: ${error.message}`));
      }
    }

    const label = (to, text) => element("label", { for: `skip-${to}` }, text);
    form.replaceChildren(element("h3", {}, "Continue without offsets"),
      element("form", { class: "grid", onsubmit: (event) => { event.preventDefault(); question(null); } },
        label("topic", "Topic"), name, label("partition", "Partition"), number, label("reason", "Reason, kept for ever"), reason,
        element("span"), element("span", { class: "row" }, element("button", { class: "action", type: "submit" }, "Show what would be missing"), action("Close", "Close the form", close))), asked);
    reason.focus();
  }

  return { act, trigger, run, ofFailed, ofFinding, skip, form };
}
