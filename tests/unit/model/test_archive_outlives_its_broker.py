"""A broker without tiered storage forgets: nothing of that deletes what is archived; our own retention does."""

from dataclasses import replace

import pytest

from include.tiering.expiration.rules import decide_deletions
from include.tiering.model.leader_epochs import LeaderEpochs, merged
from tests.doubles.retention import named, remote_segment, retention_input

HISTORY = LeaderEpochs.of([(0, 0), (1, 100), (2, 200), (4, 300)])
ARCHIVED = (
    remote_segment(1, 0, 99, {0: 0}, age_ms=40),
    remote_segment(2, 100, 199, {1: 100}, age_ms=30),
    remote_segment(3, 200, 320, {2: 200, 4: 300}, age_ms=20),
    remote_segment(4, 321, 399, {4: 321}, age_ms=10),
)


@pytest.mark.parametrize("broker_log_start", [0, 50, 100, 250, 300, 399, 400, 5_000])
def test_a_raised_log_start_and_a_cut_epoch_cache_decide_nothing(broker_log_start: int) -> None:
    seen = HISTORY.truncated_from_start(broker_log_start)
    remembered = merged(HISTORY, seen, broker_log_start)
    assert remembered.history == HISTORY
    assert remembered.contradictions == ()
    outcome = decide_deletions(retention_input(ARCHIVED, remembered.history, log_end_offset=None))
    assert outcome.decisions == ()
    assert outcome.log_start_offset == 0


def test_a_broker_that_decided_by_its_own_log_start_would_have_deleted() -> None:
    """The same archive, decided by what the broker has left: this is what must never be the input."""
    forgetful = retention_input(ARCHIVED, HISTORY.truncated_from_start(350), log_start_offset=350)
    assert named(decide_deletions(forgetful)) == [
        (200, 320, "log start"),
        (0, 99, "unreferenced leader epoch"),
        (100, 199, "unreferenced leader epoch"),
    ]


def test_a_cut_epoch_cache_alone_is_no_reason_even_if_nobody_remembered_the_rest() -> None:
    """A broker deletes what is wholly of epochs before its cache; an archive asks its own log start as well."""
    outcome = decide_deletions(retention_input(ARCHIVED, LeaderEpochs.of([(4, 350)]), log_start_offset=0))
    assert outcome.decisions == ()


def test_a_shrunken_log_end_makes_segments_foreign_and_deletes_nothing() -> None:
    outcome = decide_deletions(retention_input(ARCHIVED, HISTORY, log_end_offset=0, retention_ms=0, retention_bytes=0))
    assert outcome.decisions == ()


def test_our_own_retention_deletes_all_the_same_when_the_broker_has_nothing_left() -> None:
    history = merged(HISTORY, LeaderEpochs.of([(4, 5_000)]), 5_000).history
    given = retention_input(ARCHIVED, history, retention_ms=25, local_only_bytes=None)
    outcome = decide_deletions(given)
    assert named(outcome) == [(0, 99, "time"), (100, 199, "time")]
    assert outcome.log_start_offset == 200
    by_size = replace(given, retention_ms=None, retention_bytes=10)
    assert named(decide_deletions(by_size)) == [(0, 99, "size"), (100, 199, "size"), (200, 320, "size")]


def test_a_recorded_truncation_deletes_by_our_log_start() -> None:
    outcome = decide_deletions(retention_input(ARCHIVED, HISTORY, log_start_offset=321))
    assert named(outcome) == [
        (200, 320, "log start"),
        (0, 99, "unreferenced leader epoch"),
        (100, 199, "unreferenced leader epoch"),
    ]
