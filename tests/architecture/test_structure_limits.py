"""The structure gets no worse: every counter keeps the limit that pyproject.toml states for it.

A counter that became better gets its new value as limit, in the same change. `make structure` prints them all.
"""

from local.structure.counters import COUNTERS, TRACED, measure
from local.structure.limits import beyond_limits, limits_of
from local.structure.source import read_project
from tests.doubles.source_tree import ROOT

LIMITS = limits_of(ROOT)


def test_no_counter_is_beyond_its_limit() -> None:
    assert not beyond_limits(measure(read_project(ROOT, with_tests=False)).values, LIMITS)


def test_every_limit_belongs_to_a_counter_and_every_target_has_a_limit() -> None:
    counters = {counter.key: counter for counter in (*COUNTERS, *TRACED)}
    assert LIMITS.keys() <= counters.keys()
    assert {key for key, counter in counters.items() if counter.target is not None} <= LIMITS.keys()
