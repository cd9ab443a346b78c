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
# Damage, and the rules that find it

`make docs` writes this page from `tests/doubles/damages`. `tests/integration/test_damage_matrix.py` does {kinds} kinds
of damage to remote copies of a real broker's segments, without the platform's knowledge: in a file store, and in an S3
server (versitygw), where an object that replaces another has a correct checksum of its own. The rules of a row must
find the row's damage at the row's depth; a verification at a smaller depth must find nothing. At least 500 undamaged
segments in the file store, and at least 40 in S3, must break no rule at either depth.

In the groups about batch headers, records and the order of batches, the metadata has the checksum of the *damaged* log,
as if the source had been damaged before the copy, or as after a rebuild. Then a rule can find the damage only if the
stored bytes contradict each other or the rest of the metadata. If the metadata has the source's checksum instead, a
verification at either depth also finds another checksum (Q102) or another length (Q101) of the log. The group of damage
that is found only by the source's checksum is done with the source's checksum in the metadata.

Q105 (level object, depth deep) finds bytes that rot below an S3 store, because S3 answers with the checksum that it
computed when the object arrived. A file store keeps no checksum, but computes it from the present bytes, so Q102 finds
such bytes at either depth. This damage has a test of its own and no row.

The level is that of the first rule, which says most about the damage; the rules of the last column are broken as well,
and others may be. *Depth* is the smallest depth at which a verification of segments finds the damage. *None*: each
segment passes by itself, and the damage shows when the rows of the partition's segments are compared with a listing of
the store, or with the log start, or with the log end or the leader epochs of the source. A size run that compares with
the store evaluates the rules of level size, and an audit makes the findings of level audit; both have no depth.
"""

_NOT_CAUGHT: Final = """\
## What nothing finds

The same tests assert that no rule finds these kinds of damage; if a rule finds one, its test fails. *Harmless*: a
broker might have written the same; readers search a little longer, or an idle producer is forgotten earlier. *Unseen*:
no rule compares the changed values with others, the changed values agree with each other, or the change is about
offsets before the segments that a verification reads. The kinds of the last group are in the tables above as well: the
source's checksum finds them where the metadata has it.
"""


_NO_DAMAGE: Final = """\
## What is no damage

A batch of a few KiB may decompress to hundreds of MiB: any producer may send it, and its CRC-32C is right. At most
{mib} MiB and at most {records:,} records of a batch are checked; Q270, a warning, names a batch that exceeds one of
these limits. Its segment passes, is served, and can be handed over (`tests/scenarios/test_large_batches.py`).
"""

_OPENED: Final = """\
Names without a number are kinds of an audit's findings. A verification *opens* a batch: it decompresses the batch and
parses its records. It opens every batch that it reads until 1 MiB of records has come out. After that it opens only so
many batches that about 1 byte of records comes out for each 64 bytes of the log. It opens no batch with a wrong CRC-32C
or an unknown codec, and no further batch after one that could not be opened.
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
    """Return the table of the rules that this page names."""
    in_tables = {rule for damages in CATALOGUE.values() for damage in damages for rule in damage.rules}
    named = sorted(in_tables | {"Q105", NOT_OPENED})
    rules = [RULES_BY_ID[rule] for rule in named if rule in RULES_BY_ID]
    rows = "".join(f"| {one.rule_id} | {level_of(one.rule_id)} | {one.severity} | {one.sentence} |\n" for one in rules)
    heads = "| rule | level | severity | what must hold |\n|---|---|---|---|\n"
    return f"## Rules\n\n{_OPENED}\n{heads}{rows}"


if __name__ == "__main__":
    PAGE.write_text(page())
