"""A handover rehearsed with log directories of two real brokers that are gone; `make test-kafka` is the long way."""

from pathlib import Path

import pytest

from tests.doubles.broker_data import broker_data, expected
from tests.doubles.handover_evidence import rehearsed
from tests.doubles.kafka_lab.requests import require_kafka

pytestmark = pytest.mark.kafka
TOPIC = "orders"


def test_every_record_is_read_back_through_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three leader epochs, all codecs; one partition begins within a segment, one is empty."""
    require_kafka()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    brokers = [broker_data("public") / "stopped" / f"broker-{number}" for number in (1, 2)]

    found = rehearsed(tmp_path, brokers, TOPIC, "4.3.1")

    assert (found["equal"], found["handover"]["state"]) == (True, "done")
    consumed = expected("public")["facts"]["topics"][TOPIC]["partitions"]
    for one in found["partitions"]:
        oracle = consumed[str(one["partition"])]
        assert one["plain"]["records"] == oracle["consumed_read_uncommitted"]["records"]
        assert one["read_committed"]["records"] == oracle["consumed_read_committed"]["records"]
        if one["plain"]["records"]:
            assert one["remote_only_below"] > one["log_start_offset"]
    assert [one["log_start_offset"] for one in found["partitions"]] == [0, 350, 0]
    assert list(scratch.iterdir()) == [], "neither broker nor files are left"
