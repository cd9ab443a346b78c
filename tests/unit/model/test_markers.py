"""What is said of a store whose marker is not accepted."""

import pytest

from include.tiering.model.ownership import AcceptedMarkers, StoreMarker

OURS = StoreMarker("cluster", "store", 5, "ours")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "the store has no _tiering-store.json"),
        (StoreMarker("cluster", "another", 4, "x"), "the store belongs to"),
        (StoreMarker("another", "store", 6, "x"), "the store belongs to"),
        (StoreMarker("cluster", "store", 4, "x"), "the store was set back"),
        (StoreMarker("cluster", "store", 5, "x"), "another database has used store"),
        (StoreMarker("cluster", "store", 6, "x"), "another database has used store"),
    ],
)
def test_only_an_older_generation_was_set_back(found: StoreMarker | None, words: str) -> None:
    markers = AcceptedMarkers(OURS)
    assert not markers.accepts(found)
    assert words in markers.objection(found)
