// An entry of the runbook, as this page serves it: headings, paragraphs, lists, tables and commands.
import { ask, element, framed, panel, runbook as link } from "./parts.js";

const INLINE = /(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]+\))/;

function inline(text) {
  return text.split(INLINE).map((part) => {
    if (part.startsWith("`")) return element("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return element("b", {}, part.slice(2, -2));
    const [, words, address] = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(part) ?? [];
    if (!words) return part;
    // Entries link to each other; other pages of the documentation are not served here.
    return address.startsWith("#") ? element("a", { href: `#runbook/${address.slice(1)}` }, inline(words)) : [inline(words), ` (docs/${address})`];
  });
}

function block(lines) {
  const text = lines.join("\n");
  if (text.startsWith("#")) return element("h3", {}, inline(text.replace(/^#+ /, "")));
  if (text.startsWith("    ") || text.startsWith("```")) return framed("Commands", element("pre", {}, text.replace(/^```\w*\n?|```$/g, "").replace(/^ {4}/gm, "")));
  if (/^(- |\d+\. )/.test(text)) return element("ul", { class: "plain" }, text.split(/\n(?=\s*(?:- |\d+\. ))/).map((item) => element("li", {}, inline(item.replace(/^\s*(- |\d+\. )/, "")))));
  if (text.startsWith("|")) return element("ul", { class: "plain" }, lines.filter((line) => !/^\|[\s:|-]+$/.test(line)).map((line) => element("li", {}, inline(line.replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()).filter(Boolean).join(": ")))));
  return element("p", {}, inline(text));
}

export async function runbook(view, anchor) {
  const content = element("div", {}, element("p", { class: "dim", role: "status" }, "Loading…"));
  view.replaceChildren(element("p", {}, element("a", { href: "#now" }, "Now")), content);
  try {
    const entry = await ask(`runbook?${new URLSearchParams({ entry: anchor })}`);
    const blocks = entry.text.split(/\n{2,}/).filter((part) => part.trim()).map((part) => block(part.split("\n")));
    content.replaceChildren(panel(entry.title, blocks, element("p", { class: "dim" }, "From ", anchor ? link(`docs/runbook.md#${anchor}`) : "docs/runbook.md", ".")));
  } catch (error) {
    content.replaceChildren(element("p", { class: "panel bad", role: "alert" }, `This entry of docs/runbook.md cannot be shown: ${error.message}`));
  }
}
