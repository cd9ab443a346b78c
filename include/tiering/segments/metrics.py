"""Metrics of segments that failed the quality gate."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from include.tiering.segments.failed_copies import FailedCopy
from include.tiering.telemetry.metric import Metric, MetricKind
from include.tiering.telemetry.recorder import PrometheusRecorder

FAILED_SEGMENTS: Final = Metric(
    "tiering_failed_segments",
    MetricKind.GAUGE,
    ("topic",),
    "FINISHED remote log segments that failed the quality gate, but for those that somebody gave up and "
    "those of a history that a decision left: not served, and their partitions are stopped until new copies take their "
    "place.",
)
LOST_OFFSETS: Final = Metric(
    "tiering_lost_offsets",
    MetricKind.GAUGE,
    ("topic", "decided"),
    "Offsets of failed segments that no source can replace, as the last plan of a copy found (`no`), and of those that "
    "somebody decided to go on without (`yes`).",
)

FAILED_COPY_METRICS: Final = (FAILED_SEGMENTS, LOST_OFFSETS)


def publish_failed_copies(
    recorder: PrometheusRecorder, copies: Iterable[FailedCopy], topics: Iterable[str] = ()
) -> None:
    """`topics` are all that may have one: those without are shown as 0."""
    known = set(topics)
    failed: Counter[str] = Counter(dict.fromkeys(known, 0))
    lost: Counter[tuple[str, ...]] = Counter({(topic, decided): 0 for topic in known for decided in ("no", "yes")})
    for copy in copies:
        topic = copy.metadata.topic_id_partition.topic
        if copy.given_up:
            lost[topic, "yes"] += copy.offsets.size
            continue
        if copy.was_left:
            continue
        failed[topic] += 1
        if copy.lost_because is not None:
            lost[topic, "no"] += copy.offsets.size
    recorder.show(FAILED_SEGMENTS, {(topic,): number for topic, number in failed.items()})
    recorder.show(LOST_OFFSETS, lost)
