"""The database is lost: a new one is made from the store alone, and answers as the old one did, byte for byte."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.model.segments import TopicIdPartition, Verdict
from include.tiering.segments.contract import SegmentRow
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data
from tests.doubles.quotas import ask_the_ledger_at_once
from tests.doubles.s3_server import CREDENTIALS, versitygw_or_skip

pytestmark = pytest.mark.integration

Command = Callable[..., Result]


@pytest.fixture(params=["file", "versitygw"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Variables of a deployment over the log dirs of two real brokers, with an empty store of its own."""
    ask_the_ledger_at_once(monkeypatch)
    brokers = broker_data("public") / "stopped"
    variables = {
        "TIERING_LOG_DIRS": f"1:{brokers / 'broker-1'},2:{brokers / 'broker-2'}",
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'lost.sqlite'}",
        "TIERING_TOPICS__INCLUDE": "orders,trimmed,replicated",
        "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path / 'store'}",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if request.param == "file":
        yield
        return
    with versitygw_or_skip(tmp_path / "gateway") as server:
        server.make_bucket("tiered")
        monkeypatch.setenv("TIERING_REMOTE_STORAGE__URL", "s3://tiered/segments")
        monkeypatch.setenv("TIERING_REMOTE_STORAGE__ENDPOINT_URL", server.endpoint_url)
        monkeypatch.setenv("TIERING_REMOTE_STORAGE__REGION", "us-east-1")
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        yield


def run(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(cli, [*arguments, "--json"], prog_name="./tiering")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def fetched(tmp_path: Path, partitions: list[TopicIdPartition], code: int = 0) -> dict[str, bytes]:
    """What `./tiering fetch` writes, by file."""
    target = tmp_path / f"fetched-{len(list(tmp_path.glob('fetched-*')))}"
    for one in partitions:
        run("fetch", one.topic, str(one.partition), "--output", str(target), code=code)
    return {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*.log")}


def rows_of(app: App) -> list[SegmentRow]:
    """What both databases know of each segment."""
    return [
        replace(
            row,
            metadata=replace(row.metadata, event_timestamp_ms=0),
            source_fingerprint=None,
            finished_at_ms=None,
            verdict_at_ms=None,
            verdict=Verdict.NONE,
        )
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
    ]


@pytest.mark.usefixtures("deployment")
def test_a_database_that_is_lost_is_made_again_from_the_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_app(load_settings()) as app:
        app.set_up.migrate()
        app.copying.plan("run-1")
        assert not app.copying.run_batch("run-1", "run-1/0").failed
        partitions = list(app.adapters.stores.metadata.partitions())
        original = rows_of(app)
        states = {one: app.adapters.stores.metadata.retention_state(one) for one in partitions}
    assert run("verify")["failed"] == []
    sizes, files = run("sizes")["partitions"], fetched(tmp_path, partitions)
    assert len(files) == len(original) > 15

    for path in tmp_path.glob("lost.sqlite*"):
        path.unlink()
    monkeypatch.setenv("TIERING_METADATA__URL", f"sqlite:///{tmp_path / 'new.sqlite'}")
    refused = CliRunner().invoke(cli, ["migrate"], prog_name="./tiering")
    assert (refused.exit_code, "./tiering rebuild" in refused.output) == (1, True)

    report = run("rebuild", "--approve")
    assert (report["failed"], report["left_out"], report["interrupted"]) == ([], [], False)
    assert (report["found"]["generation"], report["marker"]["generation"]) == (2, 3)
    assert {(one["topic"], one["partition"]): one["segments"] for one in report["partitions"]} == {
        (one.topic, one.partition): sum(row.metadata.topic_id_partition == one for row in original)
        for one in partitions
    }
    with open_app(load_settings()) as app:
        assert rows_of(app) == original
        for partition, state in states.items():
            rebuilt = app.adapters.stores.metadata.retention_state(partition)
            highest = app.adapters.stores.metadata.highest_copied_offset(partition)
            assert highest is not None
            # Epochs that began behind the last copy are known to the brokers alone.
            assert rebuilt.leader_epochs == state.leader_epochs.range(-1, highest + 1)
            assert rebuilt.log_start_offset == 0
    assert fetched(tmp_path, partitions[:1], code=1) == {}

    assert run("verify", "--depth", "deep")["failed"] == []
    assert run("sizes")["partitions"] == sizes
    assert fetched(tmp_path, partitions) == files
    assert run("copy")["copied"] == []
    assert run("adopt", "--all")["refused"] == []
