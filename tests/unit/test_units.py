"""Numbers for people that remember what they are."""

import copy
from pickle import dumps, loads

import pytest

from include.tiering.units import Quantity, format_bytes, format_duration, format_utc, parse_time_ms


def test_a_quantity_remembers_its_number() -> None:
    assert (format_bytes(1536), format_bytes(1536).number) == ("1.5 KiB", 1536)
    assert (format_duration(75), format_duration(75).number) == ("1m 15s", 75)


def test_a_time_in_no_year_that_a_calendar_has_is_a_number() -> None:
    assert format_utc(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
    for written in (1_700_000_000_000_000, 2**63 - 1, -(2**63)):
        assert format_utc(written) == f"{written} ms after 1970"


def test_a_quantity_is_the_same_after_a_copy_and_in_another_process() -> None:
    unpickled = loads(dumps(format_bytes(1536)))  # noqa: S301 - made here
    for again in (copy.deepcopy(format_bytes(1536)), unpickled):
        assert isinstance(again, Quantity)
        assert (again, again.number) == ("1.5 KiB", 1536)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("0", 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times_are_milliseconds_or_iso_8601(text: str, expected: int) -> None:
    assert parse_time_ms(text) == expected


@pytest.mark.parametrize("text", ["", "-5", "yesterday", "2023-13-01", "1e9"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: milliseconds since 1970"):
        parse_time_ms(text)
