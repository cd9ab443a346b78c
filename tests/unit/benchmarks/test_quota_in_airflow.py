"""What is said of a run in Airflow is said by its trace: one that keeps to the quota passes, others fail by name."""

import re
from dataclasses import replace

import pytest

from benchmarks.airflow_scene import Change, Sample
from benchmarks.batches_panel import with_batches
from benchmarks.plot_trace import plot
from benchmarks.quota_in_airflow import BY_COMMAND, BY_FORM, FIRST, Observed, Phase, checked, picture
from benchmarks.quota_trace import BUCKETS_PER_SECOND, Trace

SECONDS = 10
QUOTAS = (FIRST, FIRST, BY_COMMAND, BY_FORM, BY_FORM)
BATCHES = (2, 3, 3, 3, 1)


def observed(rates: tuple[int, ...] = QUOTAS, batches: tuple[int, ...] = BATCHES) -> Observed:
    """Five phases of ten seconds, each with one rate and one number of batches all the time."""
    counts = [rate // BUCKETS_PER_SECOND for rate in rates for _ in range(SECONDS * BUCKETS_PER_SECOND)]
    starts = [float(number * SECONDS) for number in range(len(QUOTAS) + 1)]
    phases = tuple(
        Phase(f"phase {number}", quota, starts[number], starts[number + 1]) for number, quota in enumerate(QUOTAS)
    )
    samples = tuple(
        Sample(second + 0.5, tuple("abc"[: batches[second // SECONDS]]), batches[second // SECONDS], 3)
        for second in range(SECONDS * len(QUOTAS))
    )
    changes = (Change(BY_COMMAND, 19.0, 20.0, 20.0), Change(BY_FORM, 29.0, 30.0, 30.0))
    events = ((10.0, "pool 2 → 3"), (20.0, "configs"), (40.0, "pool 3 → 1"))
    return Observed(Trace.of(counts), 0.0, 50.0, changes, phases, events, samples, 8.0, 3.0, 0.5)


def failed(seen: Observed) -> set[str]:
    return {check.name for check in checked(seen) if not check.passed}


def test_what_keeps_to_quota_and_pool_passes() -> None:
    assert failed(observed()) == set()


@pytest.mark.parametrize(
    ("phase", "share", "names"),
    [
        (1, 1.06, {"average", "worst second"}),
        (2, 0.85, {"first 2 s", "first 5 s", "average"}),
        (4, 0.0, {"first 5 s", "average", "silence"}),
        (3, 1.2, {"first 2 s", "first 5 s", "average", "worst second", "burst"}),
    ],
)
def test_a_rate_off_the_quota_fails_in_its_phase(phase: int, share: float, names: set[str]) -> None:
    rates = tuple(round(quota * (share if number == phase else 1.0)) for number, quota in enumerate(QUOTAS))
    assert failed(observed(rates)) == {f"phase {phase}: {name}" for name in names}


def test_concurrency_that_does_not_follow_the_pool_fails() -> None:
    assert failed(observed(batches=(3, 3, 3, 3, 2))) == {"tasks before the pool grew", "batches from then on"}
    late = replace(observed(), started_after_s=31.0, surplus_s=20.0)
    assert failed(late) >= {"seconds until the waiting batch worked", "seconds until surplus batches had ended"}


def test_the_picture_has_a_step_for_each_change_of_the_batches() -> None:
    svg = picture(observed())
    assert svg.count("<svg") == svg.count("</svg>") == 2
    seen = observed()
    counts = [(0.0, 2), (10.0, 3), (40.0, 1)]
    panel = with_batches(plot(seen.trace, seen.quotas), seen.trace, counts, counts).partition("<g ")[2]
    pool, batches = re.findall(r'points="([^"]+)"', panel)
    assert pool == batches
    assert len({point.split(",")[1] for point in batches.split()}) == 3
