"""The page of damages is the catalogue that the fault injection goes through, and the catalogue is large enough."""

from include.tiering.verification.rules import NOT_OPENED
from tests.doubles.damages.catalogue import CATALOGUE, NOT_CAUGHT
from tests.doubles.damages.damage import ANY, RULES_BY_ID, Damage, level_of
from tests.doubles.damages.page import PAGE, page

_ALL = [damage for damages in CATALOGUE.values() for damage in damages]


def test_the_page_is_what_the_catalogue_says() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_every_level_and_every_rule_fails_something() -> None:
    """But Q105: it takes bytes that rot below an S3 server, which has a test of its own. Q270 is about no damage."""
    assert {level_of(rule) for damage in _ALL for rule in damage.rules} == {
        *("object", "segment", "partition", "size", "audit")
    }
    told = {rule for damage in _ALL for rule in damage.rules}
    assert set(RULES_BY_ID) - told == {"Q105", NOT_OPENED}


def test_every_kind_names_the_rule_that_finds_it() -> None:
    assert [damage.name for damage in _ALL if not damage.rules] == []
    assert [damage.name for damages in NOT_CAUGHT.values() for damage in damages if damage.rules] == []
    assert [damage.name for damage in _ALL if not _is_told_at_its_depth(damage)] == []


def test_no_kind_is_listed_twice() -> None:
    for damages in CATALOGUE.values():
        assert len({damage.name for damage in damages}) == len(damages)


def _is_told_at_its_depth(damage: Damage) -> bool:
    first = RULES_BY_ID.get(damage.rules[0])
    if first is None or damage.depth is ANY:
        return True
    return damage.depth in first.depths
