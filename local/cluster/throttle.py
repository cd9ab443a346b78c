"""Compare the throttle times of copies, as the endpoint of the metrics shows them, with a plain model.

A batch that sends one segment after the other under a quota needs size / quota for each. The quota holds it back for
that time, less the time in which its bytes are on their way: so for nearly all of size / quota, and never for longer
than the segment was in flight. Two topics are copied under different quotas, and each has to agree with the model.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.table import Table
from sqlalchemy import select

from include.tiering.copying.metrics import COPY_SENT_BYTES
from include.tiering.database.schema import segments
from include.tiering.quotas.contract import QuotaKind
from include.tiering.quotas.metrics import HELD, HELD_SECONDS
from include.tiering.telemetry.metrics import Metric
from include.tiering.units import KIB
from local.cluster.scrape import Scrape

if TYPE_CHECKING:
    from include.tiering.app import App

QUOTA: Final = "tiering.copy.total.max.bytes.per.second"
ONE_AT_A_TIME: Final = "tiering.copier.max.transfers"
QUOTAS: Final = {"throttled-96k": 96 * KIB, "throttled-32k": 32 * KIB}
"""Bytes a second by topic; each topic has one partition, so that one batch copies it."""
_LEAST: Final = 0.75
"""The least throttle time as a share of size / quota: a busy machine still sends when the quota already allows more."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """What one copy under a quota did; times are averages of a segment, in seconds.

    `quota` is in bytes a second; `held_back` is the number of segments that it held back.
    """

    topic: str
    quota: int
    segments: int
    held_back: int
    throttle_seconds: float
    model_seconds: float
    in_flight_seconds: float

    @property
    def fault(self) -> str | None:
        """What differs from the model; None if nothing does."""
        if self.held_back < self.segments or not self.segments:
            return f"{self.topic}: the scrape has {self.held_back} segments that a quota held back, not {self.segments}"
        # An attempt that was given up, as when the machine stood still, counts here, and has no end in the database.
        most_seconds = self.in_flight_seconds if self.held_back == self.segments else math.inf
        if not _LEAST * self.model_seconds <= self.throttle_seconds <= most_seconds:
            return (
                f"{self.topic}: throttle time {self.throttle_seconds:.2f} s, expected at least {_LEAST} of "
                f"{self.model_seconds:.2f} s (size / quota), and at most {self.in_flight_seconds:.2f} s (in flight)"
            )
        return None


def throttled(app: "App", topic: str, before: Scrape, after: Scrape) -> Throttled:
    """Compare the copy of a topic that took place between two scrapes with its quota."""

    def grown(metric: Metric, **labels: str) -> float:
        return after.total(metric, **labels) - before.total(metric, **labels)

    partitions = [one for one in app.adapters.stores.metadata.partitions() if one.topic == topic]
    statement = select(segments.c.started_at_ms, segments.c.finished_at_ms).where(
        segments.c.topic_id.in_([str(partition.topic_id) for partition in partitions]),
        segments.c.finished_at_ms.is_not(None),
    )
    with app.adapters.engine.connect() as connection:
        in_flight = [finished - started for started, finished in connection.execute(statement)]
    number, held_back = len(in_flight), round(grown(HELD, kind=QuotaKind.COPY.value))
    return Throttled(
        topic,
        QUOTAS[topic],
        number,
        held_back,
        grown(HELD_SECONDS, kind=QuotaKind.COPY.value) / max(1, held_back),
        grown(COPY_SENT_BYTES, topic=topic) / max(1, number) / QUOTAS[topic],
        sum(in_flight) / 1000 / max(1, number),
    )


def faults(found: Iterable[Throttled]) -> Iterator[str]:
    yield from (one.fault for one in found if one.fault is not None)


def table(found: Iterable[Throttled]) -> Table:
    """Show the throttle time of each topic beside the model."""
    shown = Table(title="throttle time of a segment, average, seconds", title_justify="left")
    shown.add_column("topic")
    for heading in (
        "quota\nKiB/s",
        "segments",
        "throttled\n(scraped)",
        "size / quota\n(model)",
        "in flight\n(database)",
    ):
        shown.add_column(heading, justify="right")
    for one in found:
        seconds = (one.throttle_seconds, one.model_seconds, one.in_flight_seconds)
        shown.add_row(one.topic, str(one.quota // KIB), str(one.segments), *(f"{each:.2f}" for each in seconds))
    return shown
