"""Many schedules in parallel processes, with progress; what was done is kept, so that a run goes on where it stopped.

State lies in one JSON file per version of the simulator and the product: their sources are hashed, because a seed means
another schedule after either changed. Counts of older versions stay: see `by_version`.
"""

import hashlib
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.simulation.schedule import run_schedule

ROOT: Final = Path(__file__).resolve().parents[2]
STATE: Final = ROOT / ".run" / "simulation"
CHUNK: Final = 50


@dataclass(slots=True)
class Tally:
    """What a number of schedules came to."""

    done: list[int] = field(default_factory=list)
    """Numbers of chunks: `CHUNK` seeds each, from `number * CHUNK` on."""
    schedules: int = 0
    steps: int = 0
    cpu_seconds: float = 0.0
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        self.done += other.done
        self.schedules += other.schedules
        self.steps += other.steps
        self.cpu_seconds += other.cpu_seconds
        self.failures += other.failures
        self.coverage += other.coverage

    def to_json(self) -> str:
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({**values, "coverage": dict(sorted(self.coverage.items()))}, indent=0)

    @classmethod
    def from_json(cls, text: str) -> "Tally":
        values: dict[str, Any] = json.loads(text)
        failures = [(seed, invariant, detail) for seed, invariant, detail in values.pop("failures")]
        return cls(coverage=Counter(values.pop("coverage")), failures=failures, **values)


def version() -> str:
    """Of what a seed means: all sources of the library and of the simulator."""
    digest = hashlib.sha256()
    for directory in ("include/tiering", "tests/simulation"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def run_chunk(number: int) -> Tally:
    """`CHUNK` seeds, one after another."""
    tally = Tally(done=[number])
    began = time.process_time()
    for seed in range(number * CHUNK, (number + 1) * CHUNK):
        outcome = run_schedule(seed)
        tally.schedules += 1
        tally.steps += outcome.steps
        tally.coverage += outcome.coverage
        if outcome.violation is not None:
            tally.failures.append((seed, outcome.violation.invariant, outcome.violation.detail))
    tally.cpu_seconds = time.process_time() - began
    return tally


def run(first_seed: int, seeds: int, processes: int) -> Tally:
    """Run what is not done yet of these seeds, whole chunks of them; returns all that this version did."""
    STATE.mkdir(parents=True, exist_ok=True)
    path = STATE / f"{version()}.json"
    tally = Tally.from_json(path.read_text()) if path.exists() else Tally()
    wanted = range(first_seed // CHUNK, (first_seed + seeds + CHUNK - 1) // CHUNK)
    open_chunks = [number for number in wanted if number not in set(tally.done)]
    began, ran = time.monotonic(), 0
    for chunk in _chunks(open_chunks, processes):
        tally.add(chunk)
        ran += chunk.schedules
        path.write_text(tally.to_json())
        rate = ran / (time.monotonic() - began)
        left = len(open_chunks) * CHUNK - ran
        say(
            f"{tally.schedules} schedules, {tally.steps} steps, {len(tally.failures)} failures;"
            f" {rate:.1f} a second, {left / rate:.0f} s left"
        )
        for seed, invariant, detail in chunk.failures:
            say(f"  seed {seed}: {invariant}: {detail}")
    return tally


def say(text: str) -> None:
    """To a person who waits."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def by_version() -> dict[str, Tally]:
    """What each version did, the oldest first."""
    paths = sorted(STATE.glob("*.json"), key=lambda path: path.stat().st_mtime)
    return {path.stem: Tally.from_json(path.read_text()) for path in paths}


def _chunks(numbers: list[int], processes: int) -> Iterator[Tally]:
    if processes == 1:
        yield from map(run_chunk, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run_chunk, numbers)
