"""How far the brokers' metadata topic was read, as gauges: partitions and outcomes without anything too."""

from prometheus_client import CollectorRegistry

from include.tiering.metadata_sync.metrics import publish_ingest
from include.tiering.segments.ingestion_contract import IngestPosition, RecordOutcome
from include.tiering.telemetry.metrics import PrometheusRecorder


def test_each_partition_and_each_outcome_has_its_number() -> None:
    registry = CollectorRegistry()
    recorder = PrometheusRecorder(registry)

    def shown(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tiering_ingest_{name}", labels)

    positions = [
        IngestPosition(0, next_offset=40, end_offset=45, looked_at_ms=1_700_000_000_250),
        IngestPosition(1, next_offset=9, end_offset=9, looked_at_ms=1_600_000_000_000, stopped="a record is missing"),
    ]
    outcomes = {
        0: {RecordOutcome.APPLIED: 30, RecordOutcome.UNUSABLE: 2},
        1: {RecordOutcome.APPLIED: 9},
    }
    publish_ingest(recorder, positions, outcomes)
    assert [shown("lag_records", metadata_partition=number) for number in "01"] == [5, 0]
    assert [shown("stopped", metadata_partition=number) for number in "01"] == [0, 1]
    assert shown("looked_timestamp_seconds") == 1_700_000_000.25
    assert [shown("records", outcome=outcome) for outcome in RecordOutcome] == [39, 0, 0, 2]


def test_before_the_first_look_the_time_is_0() -> None:
    registry = CollectorRegistry()
    publish_ingest(PrometheusRecorder(registry), [], {})
    assert registry.get_sample_value("tiering_ingest_looked_timestamp_seconds") == 0
    assert registry.get_sample_value("tiering_ingest_records", {"outcome": "applied"}) == 0
