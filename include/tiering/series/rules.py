"""What is computed from minutes of recorded metrics when they are shown: rates, throttle times and peaks. Pure.

Sums over processes exist only for whole minutes in which every process has written what it recorded. The newest of
these is `newest_minute`; it ended 15 to 75 seconds ago.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.quotas.contract import QuotaKind
from include.tiering.quotas.metrics import (
    COPY_BYTE_RATE,
    COPY_THROTTLE_AVG,
    COPY_THROTTLE_MAX,
    DELETE_CALLS,
    DELETE_RATE,
    FETCH_BYTE_RATE,
    FETCH_PACING_AVG,
    FETCH_PACING_MAX,
    FETCH_THROTTLE_AVG,
    FETCH_THROTTLE_MAX,
    GRANTED_BYTES,
    HELD,
    HELD_SECONDS,
    REFUSALS,
    REFUSED_SECONDS,
    THROTTLED_SECONDS,
)
from include.tiering.series.contract import SeriesKey
from include.tiering.telemetry.metrics import MINUTE_MS, Metric

SETTLED_MS: Final = 15_000
"""So long after a minute every process that was not held up has written what it recorded in it."""

Minutes = Mapping[SeriesKey, Mapping[int, float]]
"""Values by series and minute since 1970."""

COMPUTED_FROM: Final = tuple(
    metric.name
    for metric in (
        GRANTED_BYTES,
        HELD,
        HELD_SECONDS,
        REFUSALS,
        REFUSED_SECONDS,
        DELETE_CALLS,
        COPY_THROTTLE_MAX,
        FETCH_PACING_MAX,
        FETCH_THROTTLE_MAX,
    )
)
"""Names of the metrics that `computed` needs."""

TRAFFIC_FROM: Final = tuple(metric.name for metric in (GRANTED_BYTES, THROTTLED_SECONDS, DELETE_CALLS))
"""Names of the metrics that `traffic` needs."""


def newest_minute(now_ms: int) -> int:
    """Return the newest whole minute, since 1970, that every process has written."""
    return (now_ms - SETTLED_MS) // MINUTE_MS - 1


def window_minutes(samples: int, sample_ms: int) -> int:
    """Return the length of a quota's window in whole minutes, at least one."""
    return max(1, round(samples * sample_ms / MINUTE_MS))


def computed(minutes: Minutes, newest: int, windows: Mapping[QuotaKind, int]) -> dict[Metric, float]:
    """Return the values of the computed metrics and of the peaks.

    Args:
        minutes: of the metrics `COMPUTED_FROM`.
        newest: the newest whole minute.
        windows: over how many minutes the byte rate of a kind is measured.
    """

    def total(metric: Metric, kind: QuotaKind | None = None, of_minutes: int = 1) -> float:
        return total_of(minutes, metric, newest, of_minutes, kind)

    def ratio(sums: Metric, numbers: Metric, kind: QuotaKind | None = None) -> float:
        number = total(numbers, kind)
        return 1000 * total(sums, kind) / number if number else 0.0

    def rate(kind: QuotaKind) -> float:
        of_minutes = windows[kind]
        return total(GRANTED_BYTES, kind, of_minutes) / (of_minutes * 60)

    return {
        COPY_BYTE_RATE: rate(QuotaKind.COPY),
        FETCH_BYTE_RATE: rate(QuotaKind.FETCH),
        DELETE_RATE: total(DELETE_CALLS) / 60,
        COPY_THROTTLE_AVG: ratio(HELD_SECONDS, HELD, QuotaKind.COPY),
        FETCH_PACING_AVG: ratio(HELD_SECONDS, HELD, QuotaKind.FETCH),
        FETCH_THROTTLE_AVG: ratio(REFUSED_SECONDS, REFUSALS),
        COPY_THROTTLE_MAX: total(COPY_THROTTLE_MAX),
        FETCH_PACING_MAX: total(FETCH_PACING_MAX),
        FETCH_THROTTLE_MAX: total(FETCH_THROTTLE_MAX),
    }


def total_of(minutes: Minutes, metric: Metric, newest: int, of_minutes: int, kind: QuotaKind | None = None) -> float:
    """Return the sum of a metric over the newest minutes and all of its series, or those of one kind of traffic."""
    return sum(
        value
        for key, values in minutes.items()
        if key.metric == metric.name and (kind is None or ("kind", kind.value) in key.labels)
        for minute, value in values.items()
        if newest - of_minutes < minute <= newest
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What all processes did in the newest `minutes` whole minutes."""

    minutes: int
    copied_bytes: int
    copy_throttled_seconds: float
    fetched_bytes: int
    fetch_throttled_seconds: float
    delete_requests: int


def traffic(minutes: Minutes, newest: int, of_minutes: int) -> Traffic:
    """Return what all processes did in the newest `of_minutes` minutes. `minutes` are of `TRAFFIC_FROM`."""

    def total(metric: Metric, kind: QuotaKind | None = None) -> float:
        return total_of(minutes, metric, newest, of_minutes, kind)

    return Traffic(
        of_minutes,
        round(total(GRANTED_BYTES, QuotaKind.COPY)),
        total(THROTTLED_SECONDS, QuotaKind.COPY),
        round(total(GRANTED_BYTES, QuotaKind.FETCH)),
        total(THROTTLED_SECONDS, QuotaKind.FETCH),
        round(total(DELETE_CALLS)),
    )
