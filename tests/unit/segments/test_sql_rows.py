"""Leader epochs as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.segments.sql_rows import decode_leader_epochs, encode_leader_epochs


def test_golden_text():
    assert encode_leader_epochs(LeaderEpochs.of([(0, 0), (3, 2**63 - 1)])) == "0:0,3:9223372036854775807"
    assert encode_leader_epochs(LeaderEpochs()) == ""


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), unique_by=lambda entry: entry[0]))
def test_round_trip(entries: list[tuple[int, int]]):
    starts = sorted(start for _, start in entries)
    history = LeaderEpochs.of(zip(sorted(epoch for epoch, _ in entries), starts, strict=True))
    assert decode_leader_epochs(encode_leader_epochs(history)) == history


@pytest.mark.parametrize("text", ["0", "0:", "a:b", "0:0,", "0:0:0", "1:0,0:5", ";"])
def test_other_text_is_refused(text: str):
    with pytest.raises(ValueError):
        decode_leader_epochs(text)
