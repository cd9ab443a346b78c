"""A batch of a whole deployment asks topic quotas, and its metrics and meters agree."""

from pathlib import Path

from prometheus_client import REGISTRY

from include.tiering.app import open_app
from include.tiering.configs.config_store import ALL_BROKERS, TOPIC_QUOTAS_ENABLE
from include.tiering.quotas.metrics import TOPIC_BYTES_IN
from include.tiering.quotas.topic_quotas import MeterKind
from tests.doubles.planned_run import RUN_ID, planned_run, settings_of


def _counter(topic: str, meter: str) -> float:
    return REGISTRY.get_sample_value(f"{TOPIC_BYTES_IN.name}_total", {"topic": topic, "meter": meter}) or 0.0


def test_what_a_batch_copied_is_what_its_topics_brought_in(tmp_path: Path) -> None:
    with open_app(settings_of(planned_run(tmp_path, topics='["orders"]'))) as app:
        app.adapters.stores.configs.alter(ALL_BROKERS, {TOPIC_QUOTAS_ENABLE: "true"}, author="test")
        before = _counter("orders", "accepted")
        result = app.copying.run_batch(RUN_ID, f"{RUN_ID}.0")
        report = app.adapters.topic_quotas.report()
    copied_bytes = sum(segment.size_bytes for segment in result.copied)
    offsets = sum(segment.end_offset - segment.start_offset + 1 for segment in result.copied)
    assert copied_bytes > 0
    for kind in (MeterKind.IO, MeterKind.ACCEPTED):
        meters = [broker.meters.kinds[kind] for broker in report.brokers]
        assert sum(meter.bytes.count for meter in meters) == copied_bytes
        assert sum(meter.records.count for meter in meters) == offsets
    assert _counter("orders", "accepted") - before == copied_bytes
