"""`./tiering delete-records`: our log start rises by decision, asked for first, and never beyond what is archived."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.cli.app import cli
from include.tiering.cli.command import author
from include.tiering.database.schema import events
from include.tiering.model.ownership import TopicOwner
from tests.doubles.archive import Archive

pytestmark = pytest.mark.integration

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    archive = Archive.of(tmp_path_factory.mktemp("archive"))
    archive.copy()
    return archive


@pytest.fixture
def delete_records(archive: Archive) -> Command:
    def run(before_offset: int, *options: str, partition: int = 0) -> Result:
        where = ["--partition", str(partition), "--before-offset", str(before_offset)]
        arguments = ["--config", str(archive.config), "delete-records", "orders", *where, "--json", *options]
        return CliRunner().invoke(cli, arguments, prog_name="./tiering")

    return run


def test_without_a_terminal_it_needs_the_flag(delete_records: Command) -> None:
    refused = delete_records(100)
    assert refused.exit_code == 1
    assert json.loads(refused.stdout) | {"topic_id": ""} == {
        "topic": "orders",
        "topic_id": "",
        "partition": 0,
        "from": 0,
        "to": 0,
        "segments": 1,
        "bytes": 31_758,
        "refusal": "without a terminal it needs --approve",
    }


def test_agreed_to_it_rises_with_an_event_and_never_falls(archive: Archive, delete_records: Command) -> None:
    done = json.loads(delete_records(100, "--approve").stdout)
    assert (done["from"], done["to"], done["refusal"]) == (0, 100, None)
    lower = delete_records(50)
    assert lower.exit_code == 0
    assert (json.loads(lower.stdout)["from"], json.loads(lower.stdout)["to"]) == (100, 100)
    with archive.open() as app, app.adapters.engine.connect() as connection:
        (event,) = connection.execute(events.select().where(events.c.kind == "log-start"))
    assert (event.detail, event.author) == ("0 -> 100: delete-records", author())


def test_not_beyond_what_is_archived(delete_records: Command) -> None:
    refused = delete_records(1_311, "--approve")
    assert refused.exit_code == 2
    assert "beyond what is archived: at most 1310" in refused.stderr


def test_no_such_partition(delete_records: Command) -> None:
    refused = delete_records(1, "--approve", partition=7)
    assert refused.exit_code == 2
    assert "nothing of it is in remote storage" in refused.stderr


def test_only_of_a_topic_that_is_ours(archive: Archive, delete_records: Command) -> None:
    with archive.open() as app:
        (topic_id,) = {partition.topic_id for partition in app.adapters.stores.metadata.partitions()}
        owners: dict[str, Any] = {"expected": TopicOwner.PLATFORM, "author": "test"}
        app.adapters.stores.registry.set_owner(topic_id, "orders", TopicOwner.HANDING_OVER, **owners)
    refused = delete_records(200, "--approve")
    assert refused.exit_code == 2
    assert "the topic's owner is handing-over" in refused.stderr
