"""HTML pages that are safe from injection. A page without a script makes no requests.

Pages are trees of elements, and all text in them is escaped. A page contains its style and no image, font or frame. The
content security policy in its head forbids every request, also if the page is opened as a file from disk. A page with a
button contains a script, which is a constant of the program. The policy of such a page allows exactly this script, by
its hash, and lets it send requests to the server of the page.
"""

import base64
import hashlib
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from include.tiering.errors import printable

MAX_TEXT_CHARACTERS: Final = 4_000

STYLE: Final = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #f6f8fa; --dim: #57606a;
  --bad: #b42318; --bad-soft: #fef3f2; --odd: #93590b; --odd-soft: #fff8eb; --good: #1a7f37; --good-soft: #eefbf1;
  --text: #1f2328; --page: #ffffff; --link: #0a58ca; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --soft: #1c2129; --dim: #9198a1;
  --bad: #ff8a80; --bad-soft: #3a1d1b; --odd: #e3b341; --odd-soft: #33270d; --good: #56d364; --good-soft: #14301c;
  --text: #e6edf3; --page: #0d1117; --link: #79b8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 2rem 4rem; color: var(--text); background: var(--page);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: .2rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
a { color: var(--link); }
nav, footer, .dim { color: var(--dim); }
footer { margin-top: 3rem; font-size: .85rem; }
code { font: .9em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.verdict { border: 1px solid; border-radius: 6px; padding: .7rem 1rem; font-size: 1.1rem; font-weight: 600; }
.bad { color: var(--bad); } .odd { color: var(--odd); } .good { color: var(--good); }
.verdict.bad { background: var(--bad-soft); } .verdict.odd { background: var(--odd-soft); }
.verdict.good { background: var(--good-soft); }
dl { display: grid; grid-template-columns: repeat(2, max-content 1fr); gap: .15rem 1.2rem; margin: 1rem 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .7rem .4rem 0; text-align: left; vertical-align: top; }
th { color: var(--dim); font-weight: 600; white-space: nowrap; }
td.name { min-width: 9rem; overflow-wrap: anywhere; } td.id { white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td p { margin: 0 0 .3rem; white-space: pre-wrap; overflow-wrap: anywhere; }
tr:target { background: var(--odd-soft); outline: 2px solid var(--odd); }
details { margin: .6rem 0; } summary { cursor: pointer; font-weight: 600; }
"""


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _policy(script: str | None) -> str:
    policy = f"default-src 'none'; style-src {_source(STYLE)}; base-uri 'none'; form-action 'none'"
    return policy if script is None else f"{policy}; script-src {_source(script)}; connect-src 'self'"


def content_security_policy(script: str | None = None) -> str:
    """Return the policy for a page's HTTP header. Only a header can forbid other sites to embed the page in a frame.

    With a `script` the page may run exactly this script, and the script may send requests to the server of the page.
    """
    return f"{_policy(script)}; frame-ancestors 'self'"


CONTENT_SECURITY_POLICY: Final = content_security_policy()


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """Return an element; the argument `class_` sets the attribute `class`."""
    made = Element(tag, {name.rstrip("_"): visible(value) for name, value in attributes.items()})
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + visible(child)
        else:
            last.tail = (last.tail or "") + visible(child)
    return made


def table(heads: tuple[str, ...], rows: list[Element]) -> Element:
    """Return a table. If a head ends in `>`, its column has numbers; the `>` is not shown."""
    cells = [element("th", head.removesuffix(">"), **_number(head.endswith(">"))) for head in heads]
    return element("table", element("thead", element("tr", *cells)), element("tbody", *rows))


def number(value: int) -> Element:
    return element("td", f"{value:,}", class_="number")


def document(title: str, *body: Element, script: str | None = None) -> bytes:
    """Return a page in UTF-8. `script` must be a constant of the program without `</`, because it is not escaped."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Element("meta", {"http-equiv": "Content-Security-Policy", "content": _policy(script)}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
    )
    SubElement(head, "style").text = STYLE
    page = element("html", head, element("body", *body), lang="en")
    if script is not None:
        SubElement(page[1], "script").text = script
    markup: bytes = tostring(page, encoding="utf-8", method="html")
    return b"<!DOCTYPE html>\n" + markup + b"\n"


def visible(text: str) -> str:
    """Return the text, cut after `MAX_TEXT_CHARACTERS`, with every unprintable character except line feeds escaped."""
    if len(text) > MAX_TEXT_CHARACTERS:
        text = f"{text[:MAX_TEXT_CHARACTERS]}… ({len(text)} characters)"
    return "\n".join(printable(line) for line in text.split("\n"))


def _number(is_number: bool) -> dict[str, str]:
    return {"class_": "number"} if is_number else {}
