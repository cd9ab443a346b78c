"""Scenarios of quotas, and outages of what they depend on."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from benchmarks.quota_scene import EACH_BROKER, TOTAL, Scene, Worker, begin, end, summary
from benchmarks.quota_trace import (
    Trace,
    largest_tenth,
    last_byte_after_s,
    longest_burst_s,
    longest_silence_s,
    minute_averages,
    reached_after_s,
    settled_after_s,
    slowest_second,
    worst_second,
)
from include.tiering.clock import SystemClock
from include.tiering.quotas.contract import Scope
from include.tiering.quotas.shared_quotas import open_ledger_engine
from include.tiering.units import MIB

# What has to hold while workers come, go, are killed, and quotas change: each scenario once, at any rate and
# length. A check has a figure and a bound, both in the outcome. Bounds are those that users are promised. No test
# checks them, because a busy machine breaks them: tests/integration/test_quota_scenarios.py asserts what holds on
# any.

SLOW_SHARE: Final = 0.01
SEGMENT_BYTES: Final = 64 * MIB

ChangeQuotas = Callable[[Scene, Mapping[Scope, int]], float]
"""Puts quotas in force; returns when, after every running worker has taken them."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Shares are of the quota in force."""

    least_average: float = 0.98
    most_average: float = 1.0
    most_in_a_second: float = 1.05
    charged_within: float = 0.01
    settled_within: float = 0.10
    settled_s: float = 0.5
    silence_s: float = 0.5
    burst_s: float = 0.5
    busy_s: float = 1.0
    recovered_s: float = 3.0
    lease_s: float = 1.0
    resumed_s: float = 3.0


FIRM: Final = Bounds()
FULL_USE: Final = Bounds(least_average=0.99)
"""Where there is something to send all the time."""


@dataclass(frozen=True, slots=True)
class Check:
    """`at_least` <= `figure` <= `at_most`; a figure that never came is None and fails."""

    name: str
    figure: float | None
    at_least: float = float("-inf")
    at_most: float = float("inf")

    @property
    def passed(self) -> bool:
        return self.figure is not None and self.at_least <= round(self.figure, 4) <= self.at_most

    def to_json(self) -> dict[str, Any]:
        bounds = {
            name: bound
            for name, bound in (("at_least", self.at_least), ("at_most", self.at_most))
            if abs(bound) < 1e300
        }
        return {"figure": None if self.figure is None else round(self.figure, 4), **bounds, "passed": self.passed}


@dataclass(frozen=True, slots=True)
class Outcome:
    """`quotas` are (time, bytes a second) on the clock of the trace; so are the times of `events`."""

    checks: tuple[Check, ...]
    trace: Trace
    quotas: tuple[tuple[float, int], ...]
    events: tuple[tuple[float, str], ...] = ()
    reported: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": not self.failed,
            "checks": {check.name: check.to_json() for check in self.checks},
            **self.reported,
        }

    def trace_json(self) -> dict[str, Any]:
        """What `plot_trace` draws."""
        return {"trace": self.trace.to_json(), "quotas": self.quotas, "events": self.events}


def steady(
    scene: Scene,
    quota: int,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    processes: int = 1,
    seconds: float = 60.0,
    bounds: Bounds = FIRM,
) -> Outcome:
    """All workers have work all the time: checked from the first byte on."""
    scene.set_quotas({TOTAL: quota})
    scene.forget()
    workers = scene.start(processes, "busy", segment_bytes)
    begun_s = begin(workers)
    time.sleep(seconds + 1.0)
    accounts = end(workers)
    trace = scene.trace()
    charged_bytes = sum(account["charged_bytes"] for account in accounts)
    checks, figures = steady_checks(trace.checked(seconds), quota, bounds)
    return Outcome(
        (*checks, _received_as_charged(trace, charged_bytes, bounds)),
        trace,
        ((begun_s, quota),),
        reported={**figures, **summary(accounts)},
    )


def steady_checks(checked: Trace, quota: int, bounds: Bounds = FIRM) -> tuple[tuple[Check, ...], dict[str, float]]:
    """Verdict and further figures of a trace in which there was work all the time."""
    averages = [checked.average, *minute_averages(checked)]
    checks = (
        Check("average, lowest", min(averages) / quota, bounds.least_average),
        Check("average, highest", max(averages) / quota, at_most=bounds.most_average),
        Check("worst second", worst_second(checked) / quota, at_most=bounds.most_in_a_second),
    )
    return checks, {
        "slowest_second": round(slowest_second(checked) / quota, 3),
        "largest_100_ms": round(largest_tenth(checked) / quota * 10, 2),
        "longest_silence_s": longest_silence_s(checked),
    }


def live_change(
    scene: Scene,
    quotas: Sequence[int],
    *,
    processes: int = 8,
    hold_s: float = 8.0,
    change: ChangeQuotas = Scene.set_quotas,
    bounds: Bounds = FIRM,
) -> Outcome:
    """One quota after the other while all send. Checked from each return of the command to the start of the next."""
    scene.set_quotas({TOTAL: quotas[0]})
    scene.forget()
    workers = scene.start(processes, "busy", SEGMENT_BYTES)
    in_force = [(begin(workers), quotas[0])]
    events, checks = [], []
    time.sleep(hold_s)
    for quota in quotas[1:]:
        started_s = time.monotonic()
        returned_s = change(scene, {TOTAL: quota})
        events += [(started_s, f"change to {quota / 1e6:g} MB/s"), (returned_s, "returned")]
        in_force.append((returned_s, quota))
        time.sleep(hold_s)
    ended_s = time.monotonic()
    accounts = end(workers)
    trace = scene.trace()
    starts = [at_s for at_s, name in events if name != "returned"]
    for (returned_s, quota), started_s, next_s in zip(in_force[1:], starts, [*starts[1:], ended_s], strict=True):
        after = trace.part(returned_s, next_s)
        checks += [
            Check(
                f"to {quota}: settled", settled_after_s(after, quota, within=bounds.settled_within), 0, bounds.settled_s
            ),
            Check(f"to {quota}: silence", longest_silence_s(trace.part(started_s, next_s)), 0, bounds.silence_s),
            Check(f"to {quota}: burst", longest_burst_s(after, quota), 0, bounds.burst_s),
        ]
    return Outcome(
        (*checks, _received_as_charged(trace, sum(account["charged_bytes"] for account in accounts), bounds)),
        trace,
        tuple(in_force),
        tuple(events),
        {
            "command_s": [round(back_s - at_s, 2) for (back_s, _), at_s in zip(in_force[1:], starts, strict=True)],
            **summary(accounts),
        },
    )


def busy_among(
    scene: Scene, quota: int, mode: str, *, others: int = 7, seconds: float = 8.0, bounds: Bounds = FIRM
) -> Outcome:
    """One busy worker begins when the others, which need next to nothing, are already there."""
    scene.set_quotas({TOTAL: quota})
    amount = {"idle": (), "slow": (round(quota * SLOW_SHARE),)}[mode]
    quiet = scene.start(others, mode, *amount)
    busy = scene.start(1, "busy", SEGMENT_BYTES)
    begin(quiet)
    time.sleep(2.0)
    scene.forget()
    begun_s = begin(busy)
    time.sleep(seconds)
    ended_s = time.monotonic()
    accounts = end([*quiet, *busy])
    trace = scene.trace()
    used = trace.part(begun_s + bounds.busy_s, ended_s)
    return Outcome(
        (
            Check(
                "98 % of the quota after", reached_after_s(trace.part(begun_s, ended_s), 0.98 * quota), 0, bounds.busy_s
            ),
            Check("average from then on", used.average / quota, bounds.least_average, bounds.most_average),
            Check("worst second", worst_second(trace) / quota, at_most=bounds.most_in_a_second),
        ),
        trace,
        ((begun_s, quota),),
        reported=summary(accounts),
    )


def killed(
    scene: Scene,
    quota: int,
    *,
    processes: int = 8,
    killed: int = 4,
    before_s: float = 8.0,
    hold_s: float = 8.0,
    bounds: Bounds = FIRM,
) -> Outcome:
    """SIGKILL of some of the workers in the middle of their segments."""
    scene.set_quotas({TOTAL: quota})
    scene.forget()
    workers = scene.start(processes, "busy", SEGMENT_BYTES)
    begun_s = begin(workers)
    time.sleep(before_s)
    killed_s = time.monotonic()
    for worker in workers[:killed]:
        worker.kill()
    time.sleep(hold_s)
    ended_s = time.monotonic()
    accounts = end(workers[killed:])
    trace = scene.trace()
    recovered = trace.part(killed_s + bounds.recovered_s, ended_s)
    return Outcome(
        (
            Check(
                f"average from {bounds.recovered_s:g} s after",
                recovered.average / quota,
                bounds.least_average,
                bounds.most_average,
            ),
            Check("worst second", worst_second(trace) / quota, at_most=bounds.most_in_a_second),
        ),
        trace,
        ((begun_s, quota),),
        ((killed_s, f"SIGKILL of {killed} of {processes}"),),
        {
            "slowest_second_after": round(slowest_second(trace.part(killed_s, ended_s)) / quota, 3),
            "whole_quota_again_s": reached_after_s(trace.part(killed_s, ended_s), 0.98 * quota),
            **summary(accounts),
        },
    )


def ledger_gone(
    scene: Scene,
    quota: int,
    outage: Callable[[], AbstractContextManager[None]],
    *,
    processes: int = 4,
    before_s: float = 5.0,
    hold_s: float = 8.0,
    outage_s: float = 10.0,
    bounds: Bounds = FIRM,
) -> Outcome:
    """`outage` keeps the ledger from everybody while its context lasts."""
    scene.set_quotas({TOTAL: quota})
    scene.forget()
    workers = scene.start(processes, "busy", SEGMENT_BYTES)
    begun_s = begin(workers)
    time.sleep(before_s)
    with outage():
        gone_s = time.monotonic()
        time.sleep(outage_s)
        back_s = time.monotonic()
    time.sleep(hold_s)
    ended_s = time.monotonic()
    accounts = end(workers)
    trace = scene.trace()
    resumed = trace.part(back_s + bounds.resumed_s, ended_s)
    return Outcome(
        (
            Check("last byte after", last_byte_after_s(trace.part(gone_s, back_s)), 0, bounds.lease_s),
            Check(
                f"average from {bounds.resumed_s:g} s after its return",
                resumed.average / quota,
                bounds.least_average,
                bounds.most_average,
            ),
            Check("worst second", worst_second(trace) / quota, at_most=bounds.most_in_a_second),
        ),
        trace,
        ((begun_s, quota),),
        ((gone_s, "ledger gone"), (back_s, "ledger back")),
        {"first_byte_after_return_s": _first_byte_after_s(trace.part(back_s, ended_s)), **summary(accounts)},
    )


def two_brokers(scene: Scene, quota: int, *, seconds: float = 8.0, bounds: Bounds = FIRM) -> Outcome:
    """A default quota per broker; then a total of 1.5 times that over both."""
    scene.set_quotas({EACH_BROKER: quota})
    scene.forget()
    workers: tuple[Worker, ...] = ()
    for broker_id in (1, 2):
        workers += scene.start(1, "busy", SEGMENT_BYTES, broker_id=broker_id)
    begun_s = begin(workers)
    time.sleep(seconds)
    total = quota * 3 // 2
    changed_s = time.monotonic()
    returned_s = scene.set_quotas({EACH_BROKER: quota, TOTAL: total})
    time.sleep(seconds)
    ended_s = time.monotonic()
    accounts = end(workers)
    trace = scene.trace()
    checks: list[Check] = []
    for name, rate, part in (
        ("two quotas", 2 * quota, trace.part(begun_s + bounds.busy_s, changed_s)),
        ("total", total, trace.part(returned_s + bounds.settled_s, ended_s)),
    ):
        checks += [
            Check(f"{name}: average", part.average / rate, bounds.least_average, bounds.most_average),
            Check(f"{name}: worst second", worst_second(part) / rate, at_most=bounds.most_in_a_second),
        ]
    return Outcome(
        (*checks, _received_as_charged(trace, sum(account["charged_bytes"] for account in accounts), bounds)),
        trace,
        ((begun_s, 2 * quota), (returned_s, total)),
        ((returned_s, "total set"),),
        summary(accounts),
    )


def _received_as_charged(trace: Trace, charged_bytes: int, bounds: Bounds) -> Check:
    return Check(
        "received of charged",
        trace.total_bytes / charged_bytes if charged_bytes else None,
        1.0 - bounds.charged_within,
        1.0 + bounds.charged_within,
    )


def _first_byte_after_s(trace: Trace) -> float | None:
    return reached_after_s(trace, 1.0, window_s=0.01)


# Ways to take the ledger from everybody for a while. It comes back unharmed when the context ends.

Outage = Callable[[], AbstractContextManager[None]]


def outage_of(metadata_url: str) -> Outage:
    """The one that fits this database."""
    is_sqlite = make_url(metadata_url).get_backend_name() == "sqlite"
    return lambda: locked_file(metadata_url) if is_sqlite else stopped_server(metadata_url)


@contextmanager
def locked_file(metadata_url: str) -> Iterator[None]:
    """SQLite: an exclusive lock on the ledger's file."""
    engine = open_ledger_engine(metadata_url, SystemClock())
    path = Path(str(engine.url.database))
    engine.dispose()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


@contextmanager
def stopped_server(metadata_url: str) -> Iterator[None]:
    """PostgreSQL: SIGSTOP for the server and all its backends; connections stay open and nobody answers."""
    engine = create_engine(metadata_url)
    with engine.connect() as connection:
        directory = Path(connection.execute(text("SHOW data_directory")).scalar_one())
    engine.dispose()
    postmaster = psutil.Process(int((directory / "postmaster.pid").read_text().splitlines()[0]))
    postmaster.suspend()
    # Nobody is born now; a backend may still end.
    processes = [*postmaster.children(recursive=True), postmaster]
    _each(processes, psutil.Process.suspend)
    try:
        yield
    finally:
        _each(processes, psutil.Process.resume)


def _each(processes: Sequence[psutil.Process], action: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            action(process)
