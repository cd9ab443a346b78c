"""The generated parts of docs/simulation.md, between `<!-- name -->` and `<!-- end of name -->`."""

import re
from typing import Final

from tests.simulation.runner import ROOT

PAGE: Final = ROOT / "docs" / "simulation.md"


def write_part(name: str, text: str) -> None:
    """Replace one part of the page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    page = PAGE.read_text()
    assert len(pattern.findall(page)) == 1, f"docs/simulation.md has no part {name}"
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page))
