"""Whether a page asks anybody for anything: parsed as a browser would, every attribute and every style looked at."""

import re
from html.parser import HTMLParser
from typing import Final

_VOID: Final = {"meta", "br", "hr", "img", "input", "link", "source", "wbr"}
_ALLOWED_TAGS: Final = frozenset(
    {"html", "head", "meta", "title", "style", "body", "nav", "h1", "h2", "p", "a", "dl", "dt", "dd", "table", "thead"}
    | {"tbody", "tr", "th", "td", "code", "strong", "details", "summary", "ul", "li", "footer"}
)
_ALLOWED_ATTRIBUTES: Final = frozenset(
    {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "open"}
)
_OWN_ADDRESS: Final = re.compile(r"#[A-Za-z0-9_-]+\Z|(\.\./|[A-Za-z0-9_-]+/)index\.html\Z")
_REQUEST_IN_STYLE: Final = re.compile(r"url\s*\(|@import|image-set|src\s*:|expression|behavior", re.IGNORECASE)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _ALLOWED_TAGS:
            self.faults.append(f"element {tag}")
        for name, value in attrs:
            if name not in _ALLOWED_ATTRIBUTES:
                self.faults.append(f"attribute {name} of {tag}")
            elif name == "href":
                self.links.append(value or "")
                if tag != "a" or not _OWN_ADDRESS.match(value or ""):
                    self.faults.append(f"{tag} leads to {value}")
            elif name == "id":
                self.ids.append(value or "")
            elif name == "http-equiv" and value != "Content-Security-Policy":
                self.faults.append(f"http-equiv {value}")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.faults.append(f"unexpected end of {tag}")

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["style"]:
            if _REQUEST_IN_STYLE.search(data):
                self.faults.append("a style that asks for something")
        else:
            self.text.append(data)


def parsed(page: bytes) -> _Page:
    """`faults` says what is foreign or unbalanced in a page; `text`, `ids`, `links` what is in it."""
    found = _Page()
    found.feed(page.decode())
    found.close()
    if found._open:
        found.faults.append(f"never ended: {found._open}")
    return found
