"""docs/quality-damages.md, written from the catalogue: `python -m tests.doubles.damages.page`."""

from collections.abc import Iterator, Sequence
from typing import Final

from include.tiering.formats.records import MAX_RECORDS, MAX_STREAMED_BYTES
from include.tiering.units import MIB
from include.tiering.verification.rules import NOT_OPENED
from tests.doubles.damages.catalogue import CATALOGUE, NOT_CAUGHT
from tests.doubles.damages.damage import ANY, RULES_BY_ID, Damage, level_of
from tests.doubles.source_tree import ROOT

PAGE: Final = ROOT / "docs" / "quality-damages.md"

_INTRODUCTION: Final = """\
# Damage, and what tells of it

`make docs` writes this from `tests/doubles/damages`. `tests/integration/test_damage_matrix.py` does {kinds} kinds of
damage to remote copies of a real broker's segments, behind the platform's back: in a file store, and in an S3 server
(versitygw), where what is put in the place of an object has a checksum of its own, and a right one. Each must be
found by the rules of its row, at its depth and not before. 500 whole segments in files, more than 40 of them in S3 as
well, must break no rule at either depth.

Where a batch or its place is damaged, the metadata has the checksum of the *damaged* log: as if the source had been so
when it was copied, or as after a rebuild. Only what bytes say of each other is left to find them by. Where the metadata
has the source's checksum, each of them is another checksum or length as well: Q102 or Q101, level object, any depth.

Bytes that rot below a store are told by Q105, level object, depth deep: S3 answers with the checksum that it computed
when the object arrived. A file store keeps none, so Q102 tells at any depth.

The level is that of the first rule, the one that says most; the others come with it, and more may. *Depth* is the least
that must be read; *none*: no segment is wrong by itself, rows and a listing tell.
"""

_NOT_CAUGHT: Final = """\
## What nothing tells of

The same tests make sure that these are still unseen, so that this page stays true. Harmless is what a broker might have
written: readers search a little longer. What is unseen is either read by nobody, or lies before the segments that are
looked at. The last group stands in the tables above as well: the source's checksum tells.
"""


_NO_DAMAGE: Final = """\
## What is no damage

A batch of a few KiB of which hundreds of MiB come out: any producer may send it, and its CRC-32C is right. Up to
{mib} MiB or {records:,} records of it are checked; one that is larger is named by Q270, a warning. Its segment passes,
is served, and can be handed over (`tests/scenarios/test_large_batches.py`).
"""


def page() -> str:
    groups = "".join(_group(name, damages) for name, damages in CATALOGUE.items())
    introduction = _INTRODUCTION.format(kinds=sum(map(len, CATALOGUE.values())))
    not_caught = "".join(
        f"- {group}: {'; '.join(one.name for one in damages)}.\n" for group, damages in NOT_CAUGHT.items()
    )
    no_damage = _NO_DAMAGE.format(mib=MAX_STREAMED_BYTES // MIB, records=MAX_RECORDS)
    return f"{introduction}\n{groups}{_NOT_CAUGHT}\n{not_caught}\n{no_damage}\n{_rules()}"


def _group(name: str, damages: Sequence[Damage]) -> str:
    rows = "".join(f"| {' | '.join(_cells(damage))} |\n" for damage in damages)
    return f"## {name}\n\n| damage | level | rule | depth | with it |\n|---|---|---|---|---|\n{rows}\n"


def _cells(damage: Damage) -> Iterator[str]:
    first, *others = damage.rules
    yield damage.name
    yield level_of(first)
    yield first
    yield "none" if damage.depth is ANY else str(damage.depth)
    yield ", ".join(others)


def _rules() -> str:
    """Those that this page names."""
    in_tables = {rule for damages in CATALOGUE.values() for damage in damages for rule in damage.rules}
    named = sorted(in_tables | {NOT_OPENED})
    rules = [RULES_BY_ID[rule] for rule in named if rule in RULES_BY_ID]
    rows = "".join(f"| {one.rule_id} | {level_of(one.rule_id)} | {one.severity} | {one.sentence} |\n" for one in rules)
    heads = "| rule | level | severity | what must hold |\n|---|---|---|---|\n"
    return f"## Rules\n\nOther names are kinds of an audit's findings.\n\n{heads}{rows}"


if __name__ == "__main__":
    PAGE.write_text(page())
