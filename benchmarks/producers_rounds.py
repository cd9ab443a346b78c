"""Rounds of `bench_producers`: kept in a file over several calls, and what their figures say together.

Cases of one round follow each other within minutes, so a ratio is taken within each round: what changes slowly on the
machine changes both of its figures. The ratio of two cases is the median over the rounds, its interval that of the
bootstrap (95 %, rounds drawn with replacement). An interval that holds 1 leaves undecided which case is slower. So do
fewer rounds than `FEWEST`: even the span of five rounds has the true median with less than 95 % probability.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from include.tiering.units import MIB

ALONE, BROKER, PLATFORM, LEADERS = "none", "broker", "platform", "leaders"
ALONE_APART, PLATFORM_APART = "none apart", "platform apart"
CASES: Final = (ALONE, BROKER, PLATFORM, LEADERS, ALONE_APART, PLATFORM_APART)
"""In the last two, broker and producer run on some cores, and the platform's copy only on the others."""
COMPARED: Final = (
    (PLATFORM, BROKER),
    (PLATFORM, ALONE),
    (LEADERS, BROKER),
    (LEADERS, PLATFORM),
    (LEADERS, ALONE),
    (BROKER, ALONE),
    (PLATFORM_APART, ALONE_APART),
)
_DRAWS: Final = 10_000
_INTERVAL: Final = (2.5, 97.5)
FEWEST: Final = 6


@dataclass(frozen=True, slots=True)
class Measured:
    """One case of one round.

    Attributes:
        case: one of `CASES`.
        load: what the producer saw, see `producer_load`.
        broker_disk_read_bytes, copier_disk_read_bytes: fetched from storage for each process in the measured time.
        copied_bytes: written to remote storage in the measured time, also to objects that were not complete at its end.
        seconds: the measured time.
        idle: share of all cores' time that nobody used.
        broker_waited_seconds: how long threads of the broker were ready to run and had no core, all together.
        machine_load: the load average of a minute, before the case.
    """

    case: str
    load: dict[str, float]
    broker_disk_read_bytes: int
    copier_disk_read_bytes: int
    copied_bytes: int
    seconds: float
    idle: float
    broker_waited_seconds: float
    machine_load: float


Round = Mapping[str, Measured]
"""By case."""


class RoundsFile:
    """Complete rounds under the same conditions, one a line, so that several calls add up to one measurement.

    Raises:
        ValueError: the file has rounds under other conditions.
    """

    def __init__(self, path: Path, conditions: Mapping[str, Any]) -> None:
        self._path, self._conditions = path, dict(conditions)
        self.rounds: list[Round] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            document = json.loads(line)
            if document["conditions"] != self._conditions:
                raise ValueError(
                    f"{path} has rounds measured with {document['conditions']}, not with {self._conditions}: "
                    "name another file"
                )
            self.rounds.append({measured["case"]: Measured(**measured) for measured in document["round"]})

    def append(self, round_: Round) -> None:
        document = {"conditions": self._conditions, "round": [asdict(measured) for measured in round_.values()]}
        with self._path.open("a") as file:
            file.write(json.dumps(document) + "\n")
        self.rounds.append(round_)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times the p99 of one case is that of another, in the median of the rounds, with its interval."""

    median: float
    low: float
    high: float
    rounds: int

    def verdict(self, most: float = 1.0) -> str:
        """Say whether it is above `most`; undecided if the interval holds `most`, or if there are too few rounds."""
        if self.rounds < FEWEST or self.low <= most <= self.high:
            return "undecided"
        return "yes" if self.low > most else "no"


def ratio(rounds: Sequence[Round], case: str, base: str) -> Ratio:
    ratios = np.array([round_[case].load["p99_ms"] / round_[base].load["p99_ms"] for round_ in rounds])
    chosen = np.random.default_rng(len(ratios)).integers(0, len(ratios), (_DRAWS, len(ratios)))
    low, high = np.percentile(np.median(ratios[chosen], axis=1), _INTERVAL)
    return Ratio(round(float(np.median(ratios)), 3), round(float(low), 3), round(float(high), 3), len(rounds))


def summary(rounds: Sequence[Round]) -> dict[str, dict[str, float]]:
    """Medians by case. `p99_least_ms` and `p99_most_ms` are those of its rounds."""
    found = {}
    for case in rounds[0]:
        measured = [round_[case] for round_ in rounds]
        p99s = [each.load["p99_ms"] for each in measured]
        found[case] = {
            "p50_ms": statistics.median(each.load["p50_ms"] for each in measured),
            "p99_ms": statistics.median(p99s),
            "p99_least_ms": min(p99s),
            "p99_most_ms": max(p99s),
            "broker_read_mib_per_second": _per_second(measured, "broker_disk_read_bytes", MIB),
            "copier_read_mib_per_second": _per_second(measured, "copier_disk_read_bytes", MIB),
            "copied_mib_per_second": _per_second(measured, "copied_bytes", MIB),
            "broker_waited_ms_per_second": _per_second(measured, "broker_waited_seconds", 0.001),
            "idle": statistics.median(each.idle for each in measured),
            "machine_load": statistics.median(each.machine_load for each in measured),
        }
    return found


def _per_second(measured: Sequence[Measured], name: str, unit: float) -> float:
    return round(statistics.median(getattr(each, name) / each.seconds for each in measured) / unit, 2)


def ratios(rounds: Sequence[Round]) -> dict[str, Ratio]:
    """By `case / base`, of all pairs of `COMPARED` that were measured."""
    return {
        f"{case} / {base}": ratio(rounds, case, base)
        for case, base in COMPARED
        if case in rounds[0] and base in rounds[0]
    }
