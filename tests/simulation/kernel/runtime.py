"""The simulation's threads, futures and time, put in place of the real ones where the product starts threads."""

import concurrent.futures
import importlib
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from include.tiering.database import transactions
from include.tiering.quotas.byte_bounded_queue import ByteBoundedQueue
from tests.simulation.kernel.futures import SimulatedExecutor, SimulatedFuture
from tests.simulation.kernel.scheduler import Scheduler
from tests.simulation.kernel.threads import SimulatedThreading

_PACKAGE: Final = "include.tiering."
_WITH_THREADS: Final = (
    "runs.batch",
    "copying.copy_batch",
    "expiration.delete_segments",
    "audit.remove_orphans",
    "handover.drive",
    "reading.service",
    "recovery.stored_attempts",
    "quotas.byte_bounded_queue",
    "remote_storage.segment_storage",
)
_WITH_REAL_THREADS: Final = tuple(
    f"{_PACKAGE}{name}" for name in ("app", "database", "kafka", "quotas", "remote_storage", "telemetry")
)
"""Packages whose threads are those of adapters, which a schedule does not use."""
_EXCEPTED: Final = (f"{_PACKAGE}quotas.byte_bounded_queue", f"{_PACKAGE}remote_storage.segment_storage")
"""Modules of these packages that threads of a schedule wait in."""


@contextmanager
def simulated_runtime(current: Callable[[], Scheduler]) -> Iterator[None]:
    """Threads, futures, the database's clock and the random bits of tokens are those of the current schedule."""
    doubles: dict[str, tuple[object, object]] = {
        "threading": (threading, SimulatedThreading(current)),
        "Future": (concurrent.futures.Future, lambda: SimulatedFuture(current())),
        "ThreadPoolExecutor": (
            concurrent.futures.ThreadPoolExecutor,
            lambda max_workers, name="": SimulatedExecutor(current(), max_workers, name),
        ),
        "wait": (concurrent.futures.wait, lambda futures: [future.exception() for future in futures]),
    }
    places: list[tuple[Any, str, object]] = []
    for module in _modules():
        for attribute, (real, double) in doubles.items():
            if getattr(module, attribute, None) is real:
                places.append((module, attribute, real))
                setattr(module, attribute, double)
    defaults: dict[str, Any] = ByteBoundedQueue.__init__.__kwdefaults__ or {}
    real_wait = defaults["wait"]
    defaults["wait"] = lambda condition, timeout: condition.wait(timeout)
    places.append((transactions, "time", time))
    clock = SimpleNamespace(time_ns=lambda: current().database_ms * 1_000_000)
    transactions.time = clock  # type: ignore[assignment, attr-defined]
    places.append((transactions, "secrets", secrets))
    transactions.secrets = SimpleNamespace(  # type: ignore[assignment, attr-defined]
        randbits=lambda count: current().choices.random_bits(count)
    )
    try:
        yield
    finally:
        for module, attribute, real in places:
            setattr(module, attribute, real)
        defaults["wait"] = real_wait


@cache
def _modules() -> tuple[Any, ...]:
    """Those of the product that may start threads, or wait for some."""
    for name in _WITH_THREADS:
        importlib.import_module(_PACKAGE + name)
    return tuple(
        module
        for name, module in sorted(sys.modules.items())
        if name in _EXCEPTED or (name.startswith(_PACKAGE) and not name.startswith(_WITH_REAL_THREADS))
    )
