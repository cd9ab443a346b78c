"""Events of a cluster's life on real brokers, one by one, while two platforms archive: one asks the brokers, one knows
their directories alone. What is archived is compared with what consumers read, and what is said with what is true."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.kafka_lab.requests import require_kafka
from tests.life import events, operations
from tests.life.cluster import LifeCluster
from tests.life.journal import Journal, Row
from tests.life.lab import Lab, open_cluster, open_lab
from tests.life.platform import Warm, warm_commands

NAMES = iter(range(1_000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LifeCluster]:
    require_kafka()
    with open_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def warm() -> Iterator[tuple[Warm, Warm]]:
    with warm_commands() as warm:
        yield warm


@pytest.fixture
def prefix() -> str:
    """Of the topics of one test, and of what its platforms include."""
    return f"life-{next(NAMES)}"


@pytest.fixture
def lab(cluster: LifeCluster, warm: tuple[Warm, Warm], prefix: str) -> Iterator[Lab]:
    """Whatever happens in a test, in the end there is no finding. LIFE_JOURNAL: a file that keeps what was said."""
    kept = os.environ.get("LIFE_JOURNAL")
    with open_lab(cluster, [f"{prefix}*"], warm, Journal(Path(kept)) if kept else None) as lab:
        yield lab
        cluster.start_all()
    assert lab.findings == []


def codes(row: Row, command: str) -> set[int]:
    return {said[command]["code"] for said in row["platforms"].values()}


def require_fetched_or_out_of_sight(row: Row) -> None:
    """Who has bootstrap servers reads a leader without a named directory over the network; for the other, it waits."""
    for name, code in (("log dirs", 1), ("brokers", 0)):
        said = row["platforms"][name]
        assert {said[command]["code"] for command in ("plan", "copy", "doctor")} == {code}, row


def begun(lab: Lab, name: str, brokers: list[int], *, records: int = 400, config: dict[str, str] | None = None) -> None:
    """A topic of which all that has rolled is archived."""
    lab.make_topic(name, brokers, config=config)
    lab.produce(name, records)
    row = lab.observe("begun", name)
    assert (codes(row, "ready"), codes(row, "copy"), codes(row, "verify")) == ({0}, {0}, {0}), row


def test_a_follower_is_elected(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2, 3])
    events.elect_another(lab, prefix)
    lab.produce(prefix, 200)
    row = lab.observe("preferred election", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_leader_is_killed(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2, 3])
    events.kill_leader(lab, prefix)
    row = lab.observe("leader killed", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


@pytest.mark.parametrize(("then", "where"), [(20, "below"), (150, "about"), (400, "beyond")])
def test_an_unclean_election_replaces_archived_records(lab: Lab, prefix: str, then: int, where: str) -> None:
    """The source ends below, about at, or beyond the archive's end."""
    begun(lab, prefix, [1, 2], records=250, config=events.UNCLEAN)
    events.lose_records(lab, prefix, lost=250, then=then)
    row = lab.observe(f"unclean election, source ends {where} the archive's end", prefix, decide=True)
    assert (codes(row, "plan"), codes(row, "copy"), codes(row, "doctor")) == ({1}, {1}, {1}), row
    lab.produce(prefix, 400)
    row = lab.observe("decided", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


@pytest.mark.parametrize("beyond", [False, True])
def test_a_divergence_is_not_forgotten_when_the_log_start_passes_it(lab: Lab, prefix: str, beyond: bool) -> None:
    """The source's log start passes the divergence (`beyond`: and the archive's end) before somebody decides."""
    begun(lab, prefix, [2, 3], records=250, config=events.UNCLEAN)
    events.lose_records(lab, prefix, lost=250, then=700)
    lab.observe("unclean election", prefix)
    events.delete_records(lab, prefix, 800 if beyond else 440)
    row = lab.observe("the log start passes the offset of the divergence", prefix, decide=True)
    assert (codes(row, "plan"), codes(row, "copy"), codes(row, "doctor")) == ({1}, {1}, {1}), row
    lab.produce(prefix, 200)
    row = lab.observe("decided", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_records_that_were_lost_before_they_were_copied(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [3, 1], records=250, config=events.UNCLEAN)
    events.lose_records(lab, prefix, lost=30, then=400, copied=False)
    row = lab.observe("unclean election, what it lost was not archived", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_replicas_move(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2])
    events.move_replicas(lab, prefix)
    lab.produce(prefix, 200)
    row = lab.observe("reassigned", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_disk_is_replaced(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [3, 1, 2])
    events.replace_disk(lab, 3, lambda: lab.observe("its disk is empty, the broker is down", prefix))
    lab.produce(prefix, 200)
    row = lab.observe("disk replaced", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_broker_is_replaced(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [2, 1])
    events.replace_broker(lab, 2)
    lab.produce(prefix, 200)
    row = lab.observe("broker replaced, nobody named the new one's directory", prefix)
    require_fetched_or_out_of_sight(row)
    operations.name_directories(lab, [1, 3, 4])
    row = lab.observe("its directory is named", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row
    events.retire_spare(lab)
    operations.name_directories(lab, [1, 2, 3])
    row = lab.observe("its replicas are back", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_topic_is_compacted_for_a_while(lab: Lab, prefix: str) -> None:
    lab.make_topic(prefix, [1, 2, 3], kind="compacted")
    lab.produce(prefix, 300)
    lab.observe("begun", prefix)
    lab.produce(prefix, 400)
    events.compact_for_a_while(lab, prefix)
    row = lab.observe("delete, compact, delete", prefix, decide=True)
    assert (codes(row, "plan"), codes(row, "doctor")) == ({1}, {1}), row
    lab.produce(prefix, 200)
    row = lab.observe("decided", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_topic_is_created_again(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2, 3])
    events.recreate(lab, prefix, records=500)
    row = lab.observe("deleted and created again", prefix)
    assert (codes(row, "copy"), codes(row, "ready"), codes(row, "doctor")) == ({0}, {0}, {0}), row


def test_a_topic_is_deleted(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2])
    begun(lab, f"{prefix}-stays", [2, 3])
    lab.delete_topic(prefix)
    row = lab.observe("deleted", prefix)
    assert (codes(row, "copy"), codes(row, "ready"), codes(row, "doctor")) == ({0}, {0}, {0}), row


def test_a_leaders_directory_is_out_of_sight(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [2, 3])
    lab.produce(prefix, 200)
    operations.name_directories(lab, [1, 3])
    row = lab.observe("the leader's directory is not named", prefix)
    require_fetched_or_out_of_sight(row)
    operations.name_directories(lab, [1, 2, 3])
    row = lab.observe("it is named", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_high_watermark_of_another_log(lab: Lab, prefix: str) -> None:
    """Only who asks no broker believes the file; the leader is held still, so nobody else is asked."""
    begun(lab, prefix, [3, 2, 1])
    lab.produce(prefix, 200)
    (log_dirs,) = (one for one in lab.platforms if one.name == "log dirs")
    with events.foreign_checkpoint(lab, prefix):
        copied = log_dirs.run("copy")
    assert (copied.code, copied.document["copied"]) == (1, [])
    assert ["high watermark above the log's end" in one["detail"] for one in copied.document["held_back"]] == [True]
    lab.produce(prefix, 50)
    row = lab.observe("the checkpoint had another log's high watermark, and the broker wrote it again", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_records_are_deleted_below_the_archives_end(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2, 3])
    events.delete_records(lab, prefix, 200)
    lab.produce(prefix, 200)
    row = lab.observe("records deleted below the archive's end", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


@pytest.mark.parametrize("retention", [False, True])
def test_records_go_before_they_are_archived(lab: Lab, prefix: str, retention: bool) -> None:
    begun(lab, prefix, [2, 3, 1])
    lab.produce(prefix, 500)
    if retention:
        events.expire_at_broker(lab, prefix, keep_bytes=40_000)
    else:
        events.delete_records(lab, prefix, 700)
    row = lab.observe("retention" if retention else "records deleted", prefix, decide=True)
    assert (codes(row, "plan"), codes(row, "copy"), codes(row, "doctor")) == ({1}, {1}, {1}), row
    row = lab.observe("decided", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_follower_is_spoiled_and_leads(lab: Lab, prefix: str) -> None:
    """Of a topic of which nothing is archived yet: the sound leader is copied, the spoiled replica is not."""
    lab.make_topic(prefix, [1, 2])
    lab.produce(prefix, 300)
    follower = events.spoil_follower(lab, prefix)
    row = lab.observe("a follower's replica is spoiled", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row
    events.rebuild_follower(lab, prefix, follower)
    lab.produce(prefix, 200)
    row = lab.observe("the replica is rebuilt", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_backup_of_the_database_is_put_back(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [3, 1, 2])
    backups = operations.back_up(lab)
    lab.produce(prefix, 300)
    lab.observe("a backup, and copies behind it", prefix)
    for backup in backups:
        backup.put_back()
    row = lab.observe("the backup is put back", prefix, served=False)
    assert codes(row, "copy") == {1}, row
    assert operations.take_over(lab) == {"brokers": 0, "log dirs": 0}
    lab.produce(prefix, 200)
    row = lab.observe("taken over and adopted", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_an_open_transaction_holds_the_copy_back(lab: Lab, prefix: str) -> None:
    lab.make_topic(prefix, [1, 2, 3], kind="transactions")
    lab.produce(prefix, 300)
    with events.open_transaction(lab, prefix, records=50) as end:
        lab.produce(prefix, 300)
        row = lab.observe("a transaction is open, others end behind it", prefix)
        assert codes(row, "doctor") == {1}, row
        end()
    lab.produce(prefix, 100)
    row = lab.observe("it is aborted", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_our_retention_takes_the_oldest(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2, 3], records=600)
    assert min(operations.expire(lab, prefix, keep_bytes=30_000).values()) > 0
    lab.produce(prefix, 200)
    row = lab.observe("our retention", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_copy_is_killed(lab: Lab, prefix: str) -> None:
    """Another one finishes what it left, once its lease has ended."""
    begun(lab, prefix, [2, 1, 3])
    lab.produce(prefix, 600)
    operations.kill_copies(lab)
    row = lab.observe("copies killed", prefix)
    assert codes(row, "copy") <= {0, 3}, row
    operations.wait_for_leases(lab)
    row = lab.observe("their leases ended", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row
