"""Silence is decided by the observer's clock alone."""

from include.tiering.quotas.shares import LEASE_SECONDS, SILENT_SECONDS, Liveness


def test_an_entry_is_alive_when_it_is_seen_first_and_until_its_lease_must_have_ended() -> None:
    liveness = Liveness()
    assert liveness.silent({"a": 1}, 100.0) == frozenset()
    assert liveness.silent({"a": 1}, 100.0 + LEASE_SECONDS) == frozenset()
    assert liveness.silent({"a": 1}, 100.01 + SILENT_SECONDS) == {"a"}


def test_a_beat_begins_the_time_anew() -> None:
    liveness = Liveness()
    liveness.silent({"a": 1, "b": 1}, 0.0)
    liveness.silent({"a": 2, "b": 1}, 1.0)
    assert liveness.silent({"a": 2, "b": 1}, 2.0) == {"b"}


def test_an_entry_that_came_back_is_alive() -> None:
    liveness = Liveness()
    liveness.silent({"a": 1}, 0.0)
    liveness.silent({}, 5.0)
    assert liveness.silent({"a": 1}, 10.0) == frozenset()
