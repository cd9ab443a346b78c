"""The setting `tiering.copy.fairness.enable` reaches the batch."""

from pathlib import Path

import pytest

from include.tiering.app import open_app
from include.tiering.model.segments import Uuid
from include.tiering.settings import load_settings
from tests.doubles.log_dirs import ORDERS, BrokerLogDir
from tests.doubles.quotas import SameLimiter

PAYMENTS = Uuid(b"payments-topicid")


class Exhausted:
    """A limiter that every byte had to wait for."""

    def __init__(self) -> None:
        self.waited_seconds = 0.0

    def take(self, wanted_bytes: int) -> int:
        self.waited_seconds += 1.0
        return wanted_bytes


@pytest.mark.parametrize(
    ("environment", "order"),
    [
        ({}, ["orders", "payments", "orders", "payments"]),
        ({"TIERING_COPY__FAIRNESS__ENABLE": "false"}, ["orders", "orders", "payments", "payments"]),
    ],
    ids=["by default", "off"],
)
def test_partitions_take_turns_by_default(tmp_path, environment, order):
    log_dir = BrokerLogDir(tmp_path / "data")
    for topic, topic_id in {"orders": ORDERS, "payments": PAYMENTS}.items():
        log_dir.create_topic(topic, topic_id)
        log_dir.partition(f"{topic}-0", topic_id).filled(0, 10, 20)
    log_dir.all_current({"orders-0": 25, "payments-0": 25})
    with open_app(_settings(tmp_path, log_dir.path, environment), quotas=SameLimiter(Exhausted())) as app:
        app.set_up.migrate()
        app.copying.plan("run")
        copied = app.copying.run_batch("run", "run/0").copied
    assert [segment.segment_id.topic_id_partition.topic for segment in copied] == order


def _settings(root: Path, log_dir: Path, environment: dict[str, str]):
    config = root / "tiering.toml"
    config.write_text(
        f"""log_dirs = [{{broker_id = 1, path = "{log_dir}"}}]
[metadata]
url = "sqlite:///{root / "metadata.sqlite"}"
[remote_storage]
url = "{(root / "store").as_uri()}"
[topics]
include = ["orders", "payments"]
"""
    )
    return load_settings(config, environ={"HOME": str(root), **environment})
