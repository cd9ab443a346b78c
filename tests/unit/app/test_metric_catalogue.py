"""The list of all metrics: names that Prometheus accepts, each once, and Kafka's own where the meaning is Kafka's."""

import re

from include.tiering.app.metrics import METRICS
from include.tiering.telemetry.metrics import MetricKind

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def test_names_are_unique_and_valid() -> None:
    names = [metric.shown_name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert [name for name in names if not NAME.fullmatch(name)] == []
    assert {metric.kind for metric in METRICS} == set(MetricKind)


def test_a_name_without_prefix_is_one_of_kafkas_mbeans() -> None:
    assert [metric.name for metric in METRICS if metric.name.startswith("tiering_") == bool(metric.mbean)] == []


def test_of_a_topic_at_most_fifteen_series_are_kept_by_minute() -> None:
    """It bounds the size of the table, see ADR 68. Metrics with a kind have two series of a topic: copy and fetch."""
    by_topic = [metric for metric in METRICS if metric.by_minute and "topic" in metric.labels]
    assert {len(metric.labels) for metric in by_topic} <= {1, 2}
    assert sum(len(metric.labels) for metric in by_topic) <= 15
    assert all(metric.by_minute for metric in METRICS if metric.kind is MetricKind.PEAK)
