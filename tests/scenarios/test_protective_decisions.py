"""What people decide makes a backup of the database from before it one that the store refuses."""

import shutil
from pathlib import Path

import pytest

from include.tiering.errors import ForeignStoreError
from include.tiering.runs.approval import Answer
from tests.doubles.archive import Archive, Command, document

pytestmark = pytest.mark.integration

WARNING = "a backup of the database from before this change would not be refused"
DEFAULT = ("--entity-type", "brokers", "--entity-default")
TOPIC = ("--entity-type", "topics", "--entity-name", "orders")
DECISIONS = {
    "a longer retention": ("configs", "--alter", *TOPIC, "--delete-config", "retention.bytes"),
    "keep": ("configs", "--alter", *DEFAULT, "--add-config", "tiering.on.topic.delete=keep"),
    "a lower floor": ("configs", "--alter", *DEFAULT, "--add-config", "tiering.expiration.min.bytes=1"),
    "a hold": ("configs", "--alter", *DEFAULT, "--add-config", "tiering.superseded.hold.ms=999999999999"),
    "pause": ("pause",),
    "pause of a topic": ("pause", "--topic", "orders"),
}


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set(retention_bytes=0)
    return archive


def back_up(archive: Archive) -> None:
    shutil.copy(archive.directory / "metadata.sqlite", archive.directory / "backup.sqlite")


def restore(archive: Archive) -> None:
    for file in archive.directory.glob("metadata.sqlite*"):
        file.unlink()
    shutil.copy(archive.directory / "backup.sqlite", archive.directory / "metadata.sqlite")


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_backup_from_before_is_refused(archive: Archive, app: Command, decision: str) -> None:
    back_up(archive)
    decided = app(*DECISIONS[decision])
    assert (decided.exit_code, WARNING in decided.output) == (0, False), decided.output
    restore(archive)
    with archive.open() as opened, pytest.raises(ForeignStoreError, match="another database has used store"):
        opened.expiration.plan("run")


@pytest.mark.parametrize("decision", DECISIONS)
def test_it_is_taken_without_the_store_and_says_what_that_means(archive: Archive, app: Command, decision: str) -> None:
    (archive.directory / "store").rename(archive.directory / "unmounted")
    decided = app(*DECISIONS[decision])
    assert decided.exit_code == 0, decided.output
    assert decided.output.count(WARNING) == 1
    with archive.open() as opened:
        assert opened.adapters.stores.work.paused_topics() or opened.adapters.stores.configs.history()[
            -1
        ].name in " ".join(DECISIONS[decision])


def test_the_same_command_again_makes_up_for_it(archive: Archive, app: Command) -> None:
    back_up(archive)
    (archive.directory / "store").rename(archive.directory / "unmounted")
    assert WARNING in app(*DECISIONS["a longer retention"]).output
    (archive.directory / "unmounted").rename(archive.directory / "store")
    assert WARNING not in app(*DECISIONS["a longer retention"]).output
    restore(archive)
    with archive.open() as opened, pytest.raises(ForeignStoreError):
        opened.expiration.plan("run")


def test_a_loosening_is_taken_and_warned_of_alike(archive: Archive, app: Command) -> None:
    app("pause")
    (archive.directory / "store").rename(archive.directory / "unmounted")
    resumed = app("resume")
    assert (resumed.exit_code, WARNING in resumed.output) == (0, True)
    loosened = app("configs", "--alter", *DEFAULT, "--add-config", "tiering.expiration.max.share=0.9")
    assert (loosened.exit_code, WARNING in loosened.output) == (0, True)


def test_a_database_that_lost_the_store_may_decide_too(archive: Archive, app: Command) -> None:
    back_up(archive)
    archive.copy()
    restore(archive)
    decided = app(*DECISIONS["a longer retention"])
    assert decided.exit_code == 0
    assert WARNING in decided.output
    assert "another database has used store" in decided.output


def test_it_costs_one_look_and_one_write(archive: Archive, app: Command) -> None:
    with archive.open() as opened:
        before = opened.adapters.stores.generations.accepted().current.generation
    app(*DECISIONS["a longer retention"])
    app("pause")
    with archive.open() as opened:
        assert opened.adapters.stores.generations.accepted().current.generation == before + 2


def test_a_rejected_approval(archive: Archive) -> None:
    with archive.open() as opened:
        plan = opened.expiration.plan("run")
        opened.adapters.stores.plan_questions.put(
            "dag run", subject="run", plan_hash=plan.plan_hash, headline="h", body="b"
        )
        opened.adapters.stores.plan_questions.show("dag run")
        back_up(archive)
        opened.questions.answer(
            "dag run", Answer.REJECTED, user_id="admin", answered_at_ms=opened.adapters.clock.now_ms()
        )
        assert opened.adapters.stores.plan_questions.find("dag run").given.answer is Answer.REJECTED
    restore(archive)
    with archive.open() as opened, pytest.raises(ForeignStoreError):
        opened.expiration.approve("run", plan.plan_hash, author="test")


def test_a_rejection_is_recorded_without_the_store(archive: Archive) -> None:
    with archive.open() as opened:
        plan = opened.expiration.plan("run")
        opened.adapters.stores.plan_questions.put(
            "dag run", subject="run", plan_hash=plan.plan_hash, headline="h", body="b"
        )
        opened.adapters.stores.plan_questions.show("dag run")
    (archive.directory / "store").rename(archive.directory / "unmounted")
    with archive.open() as opened:
        opened.questions.answer(
            "dag run", Answer.REJECTED, user_id="admin", answered_at_ms=opened.adapters.clock.now_ms()
        )
        assert opened.adapters.stores.plan_questions.find("dag run").given.answer is Answer.REJECTED


def test_what_a_restored_database_would_delete_by_is_shown_before_it_owns_the_store(
    archive: Archive, app: Command
) -> None:
    app("pause", "--topic", "orders")
    app("configs", "--alter", *DEFAULT, "--add-config", "tiering.expiration.max.share=0.5")
    back_up(archive)
    archive.copy()
    restore(archive)
    shown = app("take-over-store")
    assert shown.exit_code == 1
    for word in ("retention.bytes 0", "tiering.expiration.max.share", "0.5", "paused", "are not known here"):
        assert word in shown.output
    with archive.open() as opened:
        newest_ms = opened.adapters.stores.deletions.newest_event_ms(0)
    found = document(app("take-over-store", "--json"), 1)["deletes_by"]
    assert found["newest_event_ms"] == newest_ms
    assert found["retentions"] == [{"topic": "orders", "retention_ms": None, "retention_bytes": 0}]
    assert {one["name"]: one["value"] for one in found["limits"]}["tiering.expiration.max.share"] == "0.5"
    assert found["paused"] == ["orders"]
