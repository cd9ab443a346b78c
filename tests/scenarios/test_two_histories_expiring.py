"""A person decides to follow another history while a batch deletes what had expired of the one that is left."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.expiration.delete_segments import SegmentDeleter
from tests.doubles.two_histories import Cluster, evaluate_plainly

pytestmark = pytest.mark.integration

ORDERS = ("--entity-type", "topics", "--entity-name", "orders")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    evaluate_plainly(monkeypatch)
    cluster = Cluster(tmp_path)
    cluster.elect_unclean()
    assert cluster.run("plan")[0] == 1
    return cluster


def set_retention(cluster: Cluster, retention_ms: int) -> None:
    config = f"retention.ms={retention_ms}"
    assert cluster.text("configs", "--alter", *ORDERS, "--add-config", config)[0] == 0


def test_the_followed_history_keeps_the_offsets_of_what_expired_in_the_left_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch has asked whether its plan holds; then the decision comes; then the log start would rise."""
    real = SegmentDeleter.begin

    def begin_and_decide(deleter: SegmentDeleter, *rest: Any) -> Any:
        begun = real(deleter, *rest)
        monkeypatch.setattr(SegmentDeleter, "begin", real)
        assert cluster.decide(35, "--approve")[0] == 0
        return begun

    monkeypatch.setattr(SegmentDeleter, "begin", begin_and_decide)
    set_retention(cluster, 1)
    assert cluster.text("expire", "--approve")[0] == ExitCode.RETRY
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "a person decided to follow another history (number 1, not 0)" in warning
    set_retention(cluster, -1)
    assert cluster.run("copy")[0] == 0
    assert cluster.text("expire", "--approve")[0] == 0
    assert cluster.run("verify")[0] == 0
    assert cluster.read(0)[0][0] == (0, 0), "nothing had gone before the decision"
    assert cluster.read(35)[0][0] == (6, 35)
