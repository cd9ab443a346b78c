"""Quota metrics through the joined library: what a copy is granted, measured in the windows that were set."""

from pathlib import Path

from prometheus_client import REGISTRY

from include.tiering.app import open_app
from include.tiering.settings import load_settings
from tests.doubles.log_dirs import BrokerLogDir


def _value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_copy_is_counted_and_its_rate_ends_with_it(tmp_path: Path) -> None:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic()
    log_dir.partition().filled(0, 10, 20)
    log_dir.all_current({"orders-0": 25})
    config = tmp_path / "tiering.toml"
    config.write_text(
        f"""log_dirs = [{{broker_id = 1, path = "{log_dir.path}"}}]
[metadata]
url = "sqlite:///{tmp_path / "metadata.sqlite"}"
[remote_storage]
url = "{(tmp_path / "store").as_uri()}"
[topics]
include = ["orders"]
"""
    )
    counted = "tiering_quota_granted_bytes_total"
    before = _value(counted, kind="copy", topic="orders")
    with open_app(load_settings(config, environ={"HOME": str(tmp_path)})) as app:
        app.set_up.migrate()
        app.copying.plan("run")
        result = app.copying.run_batch("run", "run/0")
    assert len(result.copied) == 2
    assert _value(counted, kind="copy", topic="orders") - before == result.sent_bytes
    assert _value("RLMCopy_byte_rate") == 0.0
