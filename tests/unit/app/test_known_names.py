"""Names that a person mistypes, through the command line of a deployment."""

import os
from pathlib import Path

import pytest

from include.tiering.model.segments import Uuid
from tests.doubles.tiny_deployment import TinyDeployment


@pytest.fixture
def made(tmp_path: Path) -> TinyDeployment:
    """One broker's log dir with its metadata log, and `orders`."""
    return TinyDeployment(tmp_path)


_CONFIG = ("configs", "--alter", "--add-config")
_RETENTION = (*_CONFIG, "retention.ms=86400000", "--entity-type", "topics", "--entity-name")
_QUOTA = (*_CONFIG, "remote.log.manager.copy.max.bytes.per.second=1048576", "--entity-type", "brokers", "--entity-name")


@pytest.mark.parametrize(
    "command",
    [
        *((name, "--topic") for name in ("scan", "plan", "copy", "verify", "sizes", "log-dirs", "expire", "ready")),
        ("pause", "--topic"),
        _RETENTION,
    ],
    ids=lambda command: command[0],
)
def test_a_mistyped_topic_is_refused(made: TinyDeployment, command: tuple[str, ...]) -> None:
    refused = made.run(*command, "ordrs")
    assert (refused.exit_code, "did you mean orders?" in refused.stderr) == (2, True), refused.output
    assert "ordrs" not in made.run(*command, "orders").stderr
    with made.open() as app:
        assert app.adapters.stores.work.paused_topics() <= {"orders"}


_DESCRIBE = ("configs", "--describe", "--entity-type")


@pytest.mark.parametrize(
    "command",
    [
        ("doctor",),
        ("skip", "--partition", "0", "--reason", "expired"),
        ("skip", "--partition", "0", "--reason", "elected", "--follow-source-from", "4"),
        ("fetch", "--output", "{tmp}", "0"),
        ("delete-records", "--partition", "0", "--before-offset", "1"),
        ("resume", "--topic"),
        (*_DESCRIBE, "topics", "--entity-name"),
    ],
    ids=lambda command: " ".join(command[:6:5]),
)
def test_a_mistyped_topic_is_refused_where_one_topic_is_named(
    made: TinyDeployment, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *rest = (word.format(tmp=tmp_path / "fetched") for word in command)
    # The topic of `fetch` comes before the partition; elsewhere it may come last.
    asked = (name, "ordrs", *rest) if name == "fetch" else (name, *rest, "ordrs")
    refused = made.run(*asked)
    assert (refused.exit_code, "did you mean orders?" in refused.stderr) == (2, True), refused.output


def test_a_mistyped_broker_is_not_described(made: TinyDeployment) -> None:
    assert made.run(*_DESCRIBE, "brokers", "--entity-name", "1").exit_code == 0
    refused = made.run(*_DESCRIBE, "brokers", "--entity-name", "77")
    assert (refused.exit_code, "there is no broker 77" in refused.stderr) == (2, True), refused.output
    assert made.run(*_DESCRIBE, "brokers", "--entity-name", "77", "--allow-unknown").exit_code == 0


def test_a_topic_that_was_deleted_is_described_but_gets_no_config_by_mistake(made: TinyDeployment) -> None:
    with made.open() as app:
        app.adapters.stores.topic_deletions.record(
            Uuid.random(os.urandom), "gone", evidence="a record says so", author="test"
        )
    described = made.run(*_DESCRIBE, "topics", "--entity-name", "gone")
    assert (described.exit_code, described.stderr) == (0, ""), described.output
    refused = made.run(*_RETENTION, "gone")
    assert (refused.exit_code, "there is no topic gone" in refused.stderr) == (2, True), refused.output


@pytest.mark.parametrize(("setting", "kind", "name"), [(_RETENTION, "topics", "later"), (_QUOTA, "brokers", "77")])
def test_what_once_had_a_config_is_described(
    made: TinyDeployment, setting: tuple[str, ...], kind: str, name: str
) -> None:
    assert made.run(*_DESCRIBE, kind, "--entity-name", name).exit_code == 2
    made.run(*setting, name, "--allow-unknown")
    config = setting[3].partition("=")[0]
    made.run("configs", "--alter", "--entity-type", kind, "--entity-name", name, "--delete-config", config)
    described = made.run(*_DESCRIBE, kind, "--entity-name", name)
    assert (described.exit_code, config in described.stdout) == (0, True), described.output


def test_a_pause_of_a_topic_that_is_gone_can_be_ended(made: TinyDeployment) -> None:
    made.run("pause", "--topic", "later", "--allow-unknown")
    assert made.run("resume", "--topic", "later").exit_code == 0


@pytest.mark.parametrize("command", [("pause", "--topic"), _RETENTION], ids=lambda command: command[0])
def test_a_topic_may_be_named_before_it_exists(made: TinyDeployment, command: tuple[str, ...]) -> None:
    assert made.run(*command, "later", "--allow-unknown").exit_code == 0


def test_a_mistyped_broker_is_refused(made: TinyDeployment) -> None:
    assert made.run(*_QUOTA, "1").exit_code == 0
    refused = made.run(*_QUOTA, "77")
    assert (refused.exit_code, "there is no broker 77" in refused.stderr) == (2, True), refused.output
    assert made.run(*_QUOTA, "77", "--allow-unknown").exit_code == 0


def test_a_config_of_a_topic_that_is_gone_can_be_removed(made: TinyDeployment) -> None:
    made.run(*_RETENTION, "later", "--allow-unknown")
    removed = made.run(
        "configs", "--alter", "--entity-type", "topics", "--entity-name", "later", "--delete-config", "retention.ms"
    )
    assert removed.exit_code == 0, removed.output


def test_where_a_log_dir_cannot_be_read_a_name_is_accepted_with_a_warning(made: TinyDeployment, tmp_path: Path) -> None:
    made.set_environ(TIERING_LOG_DIRS=f"1:{tmp_path}/broker-1,2:{tmp_path}/no")
    accepted = made.run("pause", "--topic", "ordrs")
    assert accepted.exit_code == 0, accepted.output
    assert f"topic ordrs is not known, and could not be looked up everywhere: {tmp_path}/no" in accepted.stderr


def test_resume_says_what_is_still_paused(made: TinyDeployment) -> None:
    made.run("pause")
    made.run("pause", "--topic", "orders")
    left = made.run("resume")
    assert (left.exit_code, "./tiering resume --topic orders" in left.stderr) == (1, True)
    assert made.run("resume", "--topic", "orders").exit_code == 0
