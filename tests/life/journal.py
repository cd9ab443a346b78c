"""What was true after each event, and what the platforms said: JSON lines, and a table of them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]
_COMMANDS: Final = ("ready", "doctor", "plan", "copy")
_MOST_WORDS: Final = 150


@dataclass
class Journal:
    """Each row is written when it is known. `path` None: it is kept in memory alone."""

    path: Path | None = None
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as out:
                out.write(json.dumps(row) + "\n")


def rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(rows: Iterable[Row]) -> str:
    """Markdown: a line for each event and platform; one where both said the same. How a topic began is left out."""
    lines = ["| event | true | platform | `ready` | `doctor` | `plan` | `copy` | decided |", "|" + "---|" * 8]
    for row in rows:
        if row["event"] == "begun" and not row["findings"]:
            continue
        said = [(name, _cells(one)) for name, one in row["platforms"].items()]
        if len(said) > 1 and all(cells == said[0][1] for _, cells in said[1:]):
            said = [("both", said[0][1])]
        for number, (name, cells) in enumerate(said):
            begin = [row["event"], row["true"]] if number == 0 else ["", ""]
            lines.append(_line([*begin, name, *cells]))
        lines += [_line(["**finding**", one, *[""] * 6]) for one in row["findings"]]
    return "\n".join(lines) + "\n"


def _cells(said: Row) -> list[str]:
    cells = []
    for command in _COMMANDS:
        one = said.get(command)
        cells.append("" if one is None else f"{one['code']} {one['words']}".strip())
    return [*cells, said.get("decided", "")]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def shortened(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _MOST_WORDS else words[: _MOST_WORDS - 1].rstrip() + "…"
