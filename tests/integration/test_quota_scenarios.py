"""Quotas as a receiver sees them, in short: what `make bench-quota` judges at full length with the promised bounds.

Real processes, real sockets, the product's own wiring. The bounds are those of a machine on which other tests run: a
held-up receiver sees late bytes as a burst. A limit that is not shared would show two to three times the quota.
"""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from include.tiering.units import MIB
from tests.benchmark.quota_outages import outage_of
from tests.benchmark.quota_scenarios import (
    Bounds,
    Outcome,
    busy_among,
    killed,
    ledger_gone,
    live_change,
    steady,
    two_brokers,
)
from tests.benchmark.quota_scene import Scene, scene
from tests.doubles.databases import create_postgresql_database

__all__ = ["create_postgresql_database"]

MB: Final = 1_000_000
BOUNDS: Final = Bounds(
    least_average=0.85,
    most_average=1.02,
    most_in_a_second=1.3,
    settled_within=0.25,
    settled_s=1.0,
    silence_s=1.0,
    busy_s=2.0,
    lease_s=1.3,
    resumed_s=2.0,
)


@pytest.fixture(scope="module")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('database') / 'metadata.sqlite'}"


@pytest.fixture(scope="module")
def opened(database_url: str) -> Iterator[Scene]:
    with scene(database_url) as one:
        yield one


def assert_passed(outcome: Outcome) -> None:
    assert outcome.trace.total_bytes
    assert not outcome.failed, [(check.name, check.to_json()) for check in outcome.failed]


def test_many_processes_share_one_quota_from_the_first_second_on(opened: Scene) -> None:
    assert_passed(steady(opened, 10 * MB, segment_bytes=MIB, processes=3, seconds=2.5, bounds=BOUNDS))


def test_a_segment_that_takes_longer_than_a_window_is_paced_inside(opened: Scene) -> None:
    outcome = steady(opened, 5 * MB, segment_bytes=1024 * MIB, seconds=3, bounds=BOUNDS)
    assert_passed(outcome)
    assert outcome.reported["longest_silence_s"] < 0.5


def test_a_change_takes_effect_in_running_jobs_without_silence_or_burst(opened: Scene) -> None:
    assert_passed(live_change(opened, (20 * MB, 5 * MB, 10 * MB), processes=3, hold_s=2.0, bounds=BOUNDS))


def test_a_busy_process_gets_what_slow_ones_leave(opened: Scene) -> None:
    assert_passed(busy_among(opened, 10 * MB, "slow", others=2, seconds=3.5, bounds=BOUNDS))


def test_what_a_killed_process_held_comes_back(opened: Scene) -> None:
    assert_passed(killed(opened, 10 * MB, processes=3, killed=2, before_s=1.5, hold_s=4.5, bounds=BOUNDS))


def test_two_brokers_have_a_quota_each_and_the_total_holds_both(opened: Scene) -> None:
    assert_passed(two_brokers(opened, 5 * MB, seconds=2.5, bounds=BOUNDS))


def test_without_the_ledger_nothing_is_sent_until_it_is_back(opened: Scene, database_url: str) -> None:
    assert_passed(without_ledger(opened, database_url))


def test_the_same_holds_with_the_ledger_in_postgresql(create_postgresql_database: Callable[[str], str]) -> None:
    url = create_postgresql_database("quota_scenarios")
    with scene(url) as one:
        assert_passed(without_ledger(one, url))


def without_ledger(one: Scene, url: str) -> Outcome:
    return ledger_gone(one, 10 * MB, outage_of(url), processes=2, before_s=1.5, outage_s=2.0, hold_s=3.5, bounds=BOUNDS)
