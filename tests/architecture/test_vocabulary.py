"""One word per thing, and the word is Kafka's."""

import re

from tests.doubles.source_tree import ROOT, python_files

# Synonym (as a regular expression) -> the word that this project uses.
_BANNED = {
    r"\boffload": "copy",
    r"\b(sealed|closed|cold|frozen) segment": "rolled segment",
    r"\b(purge|prune|evict)": "expire or delete",
    r"\b(upload|download|transfer)_(quota|pool)": "copy or fetch quota, copier or reader pool",
    r"\bbandwidth": "quota, or bytes per second",
    r"\bghost (object|segment)": "orphan",
    r"\bbroken reference": "dangling reference",
    r"\blast committed offset": "last stable offset",
    r"\bleader term": "leader epoch",
    r"\bcopier_lag|\bupload lag": "copy lag",
}
_UNFINISHED = {
    r"\bTODO\b": "an entry in the tracker",
    r"\bFIXME\b": "a fix",
    r"NotImplementedError": "an implementation",
}

_SOURCES = [
    *python_files("include", "plugins", "dags", "spark_jobs", "local"),
    *sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]),
]


def test_no_synonyms_and_nothing_unfinished() -> None:
    found = [
        f"{file}:{number} {match.group()!r}: say {instead}"
        for file in _SOURCES
        for pattern, instead in _perhaps_in((ROOT / file).read_text()).items()
        for number, line in enumerate((ROOT / file).read_text().splitlines(), start=1)
        if (match := re.search(pattern, line, re.IGNORECASE))
    ]
    assert not found


def _perhaps_in(text: str) -> dict[str, str]:
    """Patterns whose letters occur: Python finds letters fast, but not edges of words, nor letters of either case."""
    lowered = text.lower()
    return {
        pattern: instead
        for pattern, instead in {**_BANNED, **_UNFINISHED}.items()
        if re.search(pattern.replace(r"\b", "").lower(), lowered)
    }
