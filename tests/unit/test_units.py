"""Numbers for people that remember what they are."""

import copy
from pickle import dumps, loads

from include.tiering.units import Quantity, format_bytes, format_duration


def test_a_quantity_remembers_its_number() -> None:
    assert (format_bytes(1536), format_bytes(1536).number) == ("1.5 KiB", 1536)
    assert (format_duration(75), format_duration(75).number) == ("1m 15s", 75)


def test_a_quantity_is_the_same_after_a_copy_and_in_another_process() -> None:
    unpickled = loads(dumps(format_bytes(1536)))  # noqa: S301 - made here
    for again in (copy.deepcopy(format_bytes(1536)), unpickled):
        assert isinstance(again, Quantity)
        assert (again, again.number) == ("1.5 KiB", 1536)
