"""Text from outside, as it may be stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.database.transactions import stored_text


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain é 漢", "plain é 漢"), ("a\x00b", "a\\x00b"), ("\x1b[2J\n", "\\x1b[2J\\n"), ("\udcff", "\\udcff")],
)
def test_what_a_terminal_or_database_would_not_take_is_escaped(text: str, stored: str):
    assert stored_text(text) == stored


@given(st.text(st.characters(), max_size=50))
def test_stored_text_is_utf_8_and_stays_as_it_is(text: str):
    stored = stored_text(text)
    assert stored.isprintable()
    stored.encode()
    assert stored_text(stored) == stored


def test_long_text_is_cut():
    assert stored_text("x" * 10_000) == "x" * 2_000
