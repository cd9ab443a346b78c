"""What topics bring in and what they may, by broker."""

from fractions import Fraction

from include.tiering.presentation import Document, Table
from include.tiering.quotas.topic_meters import TopicMeters
from include.tiering.quotas.topic_quota import BrokerUsage, TopicQuotaReport, TopicUsage
from include.tiering.units import format_bytes


def topic_quotas_document(report: TopicQuotaReport) -> Document:
    """Rates and thresholds in bytes (records) a second; counts are those ever made, by kind of meter."""
    return {
        "topic_quotas": {
            "enabled": report.enabled,
            "total_thresholds": dict(report.totals),
            "topic_thresholds": dict(report.explicit),
            "brokers": [_broker(usage) for usage in report.brokers],
        }
    }


def topic_quotas_table(report: TopicQuotaReport) -> tuple[Table, ...]:
    """No table while they are off, or nothing was ever counted."""
    if not report.enabled or not report.brokers:
        return ()
    rows = [row for usage in report.brokers for row in _rows(usage)]
    return (Table("topic quotas", ("broker", "topic", "bytes in/s>", "threshold/s>", "which is"), tuple(rows)),)


def _broker(usage: BrokerUsage) -> Document:
    return {
        "broker_id": usage.broker_id,
        "bytes_in_per_second": round(usage.meters.bytes_in_per_second, 3),
        "threshold": usage.threshold,
        "meters": _meters(usage.meters),
        "topics": [_topic(topic) for topic in usage.topics],
    }


def _topic(usage: TopicUsage) -> Document:
    return {
        "topic": usage.topic,
        "bytes_in_per_second": round(usage.meters.bytes_in_per_second, 3),
        "threshold": None if usage.threshold is None else round(float(usage.threshold), 3),
        "threshold_is": _kind_of_threshold(usage),
        "meters": _meters(usage.meters),
    }


def _meters(meters: TopicMeters) -> Document:
    return {
        str(kind): {
            "bytes": meter.bytes.count,
            "records": meter.records.count,
            "bytes_per_second": round(meter.bytes.per_second, 3),
            "records_per_second": round(meter.records.per_second, 3),
        }
        for kind, meter in meters.kinds.items()
    }


def _rows(usage: BrokerUsage) -> list[tuple[str, ...]]:
    def row(topic: str, meters: TopicMeters, threshold: Fraction | int | None, kind: str) -> tuple[str, ...]:
        limit = "none" if threshold is None else format_bytes(int(threshold))
        return (str(usage.broker_id), topic, format_bytes(round(meters.bytes_in_per_second)), limit, kind)

    return [
        row("all topics", usage.meters, usage.threshold, "the total" if usage.threshold is not None else ""),
        *(row(one.topic, one.meters, one.threshold, _kind_of_threshold(one) or "") for one in usage.topics),
    ]


def _kind_of_threshold(usage: TopicUsage) -> str | None:
    if usage.threshold is None:
        return None
    return "explicit" if usage.explicit else "shared"
