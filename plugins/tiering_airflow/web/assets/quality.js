// What was verified, by age and depth; what failed, with both values; and what audits found.
import { decisions } from "./decisions.js";
import { advice, ago, ask, bytes, confirmed, duration, element, framed, moment, panel, runbook, table, whole } from "./parts.js";

const ROWS = [
  ["passed", "deep", "Passed, every byte was read"],
  ["passed", "shallow", "Passed, ends and checksums were read"],
  ["expired", "deep", "Expired, every byte was read once"],
  ["expired", "shallow", "Expired, ends and checksums were read"],
  ["failed", null, "Failed"],
  ["none", null, "Never verified"],
];
const dim = (text) => element("p", { class: "dim" }, text);
const more = (number) => (number ? dim(`${whole(number)} more are not shown.`) : null);
const fate = (copy) => (copy.was_left ? "of a history that was replaced" : copy.given_up ? "given up by decision" : copy.lost_because ? `lost: ${copy.lost_because}` : "the next copy replaces it, if the source still has it");

export function quality(view) {
  const status = element("p", { class: "dim", role: "status" }, "Loading…");
  const said = element("p", { role: "status" });
  const parts = element("div", { class: "panels" });
  let found = null;
  const { trigger, run, ofFailed, ofFinding, form } = decisions(said, load, () => found.may);

  async function load() {
    try {
      found = await ask("quality");
      status.textContent = `As of ${moment(found.as_of_ms)}.`;
      parts.replaceChildren(verdicts(), failed(), audit(), findings());
    } catch (error) {
      status.textContent = found ? `These lines are of ${moment(found.as_of_ms)}; they cannot be read again: ${error.message}` : `Quality cannot be read: ${error.message}`;
    }
  }

  function verdicts() {
    const start = run("tiering_quality") ? confirmed("Verify what is due…", "Verify what is due now, every byte of it", () => trigger("tiering_quality", { which: "due" }, "Verify what is due")) : dim("To verify takes the permission to trigger the DAG tiering_quality.");
    if (found.counted_at_ms === null) return wide("Verdicts by age and depth", dim("Not counted yet: a verification or a size run counts them."), element("p", { class: "row" }, start));
    const all = found.verdicts.reduce((sum, each) => sum + each.segments, 0);
    if (!all) return wide("Verdicts by age and depth", dim("No segment is in remote storage."));
    const ages = found.ages_days.map((age) => [age, age.endsWith("-") ? `${age.slice(0, -1)} days and more` : `${age.replace("-", " to ")} days`]);
    const columns = [...ages, [null, "No age"]];
    const cell = (verdict, depth, age) => {
      const own = found.verdicts.find((each) => each.verdict === verdict && each.depth === depth && each.age_days === age);
      if (!own) return element("td", { class: "heat" }, "");
      const share = own.segments / all;
      const level = share > 0.5 ? 4 : share > 0.1 ? 3 : share > 0.01 ? 2 : 1;
      const kind = verdict === "passed" ? "well" : verdict === "failed" ? "wrong" : "open";
      return element("td", { class: `heat ${kind} level${level}` }, element("b", {}, whole(own.segments)), element("span", { class: "small" }, bytes(own.bytes)));
    };
    const used = ROWS.filter(([verdict, depth]) => found.verdicts.some((each) => each.verdict === verdict && each.depth === depth));
    const map = element("table", { class: "heatmap", "aria-label": "Segments by verdict, depth and age" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Verdict"), columns.map(([, text]) => element("th", { scope: "col", class: "number" }, text)))),
      element("tbody", {}, used.map(([verdict, depth, text]) => element("tr", {}, element("th", { scope: "row" }, text), columns.map(([age]) => cell(verdict, depth, age))))));
    return wide("Verdicts by age and depth",
      framed("Verdicts by age and depth", map),
      dim(`${whole(all)} segments, ${ago(found.counted_at_ms, found.as_of_ms)}. The age of a segment of which every byte was read is that of this reading; of others it is that of their verdict. Only those that passed count as safe.`),
      element("p", { class: "row" }, start));
  }

  function failed() {
    const rule = (each) => element("div", { class: "item" }, element("b", {}, each.rule), each.level === "critical" ? null : ` (${each.level})`,
      each.expected ? element("div", {}, element("span", { class: "dim" }, "Expected: "), each.expected) : null,
      element("div", {}, element("span", { class: "dim" }, "Found: "), each.found));
    const rows = table("Failed segments", [
      ["Partition", (copy) => element("a", { href: `#topic/${encodeURIComponent(copy.topic)}` }, `${copy.topic}-${copy.partition}`), "name"],
      ["Offsets", (copy) => `${copy.start_offset} to ${copy.end_offset}`],
      ["Bytes", (copy) => bytes(copy.bytes), "number"],
      ["Segment", (copy) => element("code", {}, copy.segment_id)],
      ["Rules, with both values", (copy) => (copy.broken.length ? copy.broken.map(rule) : copy.detail || "–"), "name"],
      ["What becomes of it", fate, "name"],
      ["What to do", (copy) => [runbook(copy.runbook), " ", ofFailed(copy)], "name"],
    ], found.failed);
    return wide("Failed segments", found.failed.length ? [rows, more(found.more_failed), form] : dim("No segment failed its verification."));
  }

  function audit() {
    const compare = run("tiering_audit") ? confirmed("Compare now…", "Compare the store with the metadata now", () => trigger("tiering_audit", {}, "Compare the store with the metadata")) : null;
    const last = found.audit ? `The last audit read ${whole(found.audit.objects)} objects and ${whole(found.audit.rows)} rows, ${ago(found.audit.seen_at_ms, found.as_of_ms)} (${found.audit.source}).` : "No audit has compared the store with the metadata yet.";
    const kinds = table("Open findings by kind", [
      ["Kind", (each) => each.kind], ["Findings", (each) => whole(each.findings), "number"],
      ["Bytes", (each) => bytes(each.bytes), "number"], ["What to do", (each) => advice(each.advice), "name"],
    ], found.kinds);
    return wide("Audits", dim(last),
      found.guards.map((guard) => element("p", { class: "bad", role: "alert" }, element("b", {}, guard.guard), `: ${guard.message}`)),
      found.kinds.length ? kinds : null, element("p", { class: "row" }, compare));
  }

  function findings() {
    const rows = table("Open findings", [
      ["Kind", (row) => row.kind],
      ["Object", (row) => element("code", {}, row.key), "name"],
      ["Bytes", (row) => bytes(row.bytes), "number"],
      ["What", (row) => row.message, "name"],
      ["First seen", (row) => `${duration((found.as_of_ms - row.first_seen_ms) / 1000)} ago`],
      ["What to do", (row) => [advice(row.advice), " ", ofFinding(row)], "name"],
    ], found.findings);
    return wide("Open findings", found.findings.length ? [rows, more(found.more_findings), element("p", { class: "dim" }, "What they mean: ", runbook(found.findings[0].runbook))]
      : dim(found.audit ? "No finding needs a decision." : "Not known before the first audit."));
  }

  view.replaceChildren(element("p", { class: "row" }, status, element("button", { class: "action", type: "button", onclick: load }, "Read again")), said, parts);
  load();
}

function wide(title, ...content) {
  const made = panel(title, ...content.flat(Infinity).filter(Boolean));
  made.classList.add("wide");
  return made;
}
