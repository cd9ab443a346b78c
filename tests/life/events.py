"""What happens to a cluster. Each function ends when the cluster has settled, and changes nothing of the platforms."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.doubles.kafka_lab.cluster import wait_until
from tests.doubles.kafka_lab.produce import Writer
from tests.life.cluster import HIGH_WATERMARKS, SPARE, VOTERS
from tests.life.lab import Lab

UNCLEAN: Final = {"unclean.leader.election.enable": "true"}
_CLEANED: Final = "cleaner-offset-checkpoint"


def elect_another(lab: Lab, name: str) -> None:
    """The preferred election of a replica that followed."""
    now = lab.cluster.replicas(name)
    lab.cluster.prefer(name, next(one for one in now.all if one != now.leader))


def kill_leader(lab: Lab, name: str, *, records: int = 150) -> None:
    """kill -9; a follower leads and takes records; the old leader comes back and follows."""
    cluster = lab.cluster
    leader = cluster.replicas(name).leader
    cluster.stop(leader, kill=True)
    cluster.wait_for(name, lambda now: now.leader not in (-1, leader), "another one leads")
    lab.produce(name, records)
    cluster.start_all()
    settle(lab)


def lose_records(lab: Lab, name: str, *, lost: int, then: int, copied: bool = True, event: str = "") -> None:
    """An unclean election: the newest `lost` records are on the leader alone, and consumers read them (`copied`: the
    platforms archive them); it goes, the replica that lacks them leads and takes `then` others; the old leader follows.
    """
    cluster = lab.cluster
    now = cluster.replicas(name)
    assert len(now.all) == 2, "the leader and one that lags"
    leader, lagging = now.leader, next(one for one in now.all if one != now.leader)
    cluster.stop(lagging)
    cluster.wait_for(name, lambda now: now.in_sync == {leader}, "the leader is alone")
    lab.produce(name, lost)
    if copied:
        lab.observe(event or "its follower is down, records on the leader alone", name, served=False)
    cluster.stop(leader)
    cluster.start(lagging)
    cluster.wait_for(name, lambda now: now.leader == lagging, "the one that lagged leads")
    if then:
        lab.produce(name, then)
    cluster.start_all()
    settle(lab)


def move_replicas(lab: Lab, name: str) -> None:
    """The leader's replica goes to a broker that had none, which leads then; for three replicas their order turns."""
    cluster = lab.cluster
    now = cluster.replicas(name)
    free = [node for node in VOTERS if node not in now.all]
    rest = [one for one in now.all if one != now.leader]
    cluster.reassign(name, [*free, *rest] if free else [*rest, now.leader])
    cluster.elect_preferred(name)


def replace_disk(lab: Lab, node_id: int, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Its log directory is empty when it comes back; `meanwhile` it is formatted and the broker is down."""
    lab.cluster.lose_disk(node_id)
    settle(lab, but=node_id)
    meanwhile()
    lab.cluster.start_all()
    settle(lab)


def replace_broker(lab: Lab, node_id: int) -> None:
    """The spare broker takes over what `node_id` had of the lab's topics."""
    cluster = lab.cluster
    cluster.start_spare()
    for name in lab.topics:
        now = cluster.replicas(name)
        if node_id in now.all:
            cluster.reassign(name, [SPARE if one == node_id else one for one in now.all])
            cluster.elect_preferred(name)
            cluster.written_down(name)


def retire_spare(lab: Lab) -> None:
    """The other way round: the spare broker gives all it has to the three, and stops."""
    cluster = lab.cluster
    for name in lab.topics:
        now = cluster.replicas(name)
        if SPARE in now.all:
            free = next(node for node in VOTERS if node not in now.all)
            cluster.reassign(name, [free if one == SPARE else one for one in now.all])
            cluster.elect_preferred(name)
            cluster.written_down(name)
    cluster.stop_spare()


def compact_for_a_while(lab: Lab, name: str, *, records: int = 150) -> None:
    """`cleanup.policy=compact` until the leader's cleaner was there, then `delete` again, and records behind it."""
    cluster = lab.cluster
    cluster.alter_topic(name, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    leader = cluster.replicas(name).leader
    active = cluster.bases(name, leader)[-1]
    wait_until(lambda: cluster.checkpoint(_CLEANED, name, leader) >= active, f"{name} is cleaned")
    cluster.alter_topic(name, cleanup_policy="delete", min_cleanable_dirty_ratio=None)
    lab.produce(name, records)


def recreate(lab: Lab, name: str, *, records: int) -> None:
    """Deleted, and created again under its name, with other records."""
    kind, brokers = lab.topics[name].kind, lab.cluster.replicas(name).all
    config = {
        key: value
        for key, value in lab.cluster.topic_config(name).items()
        if key in ("unclean.leader.election.enable", "cleanup.policy")
    }
    lab.delete_topic(name)
    topic = lab.make_topic(name, brokers, kind=kind, config=config)
    topic.writes = 1_000 + len(lab.gone)
    lab.produce(name, records)


def delete_records(lab: Lab, name: str, before: int) -> None:
    lab.cluster.delete_records(name, before)
    settle(lab)


def expire_at_broker(lab: Lab, name: str, *, keep_bytes: int) -> None:
    """The broker's own retention by size, until its log start has moved; then it is unset."""
    cluster = lab.cluster
    before = cluster.earliest(name, 0)
    cluster.alter_topic(name, retention_bytes=str(keep_bytes))
    wait_until(lambda: cluster.earliest(name, 0) > before, f"retention takes segments of {name}")
    cluster.alter_topic(name, retention_bytes="-1")


@contextmanager
def foreign_checkpoint(lab: Lab, name: str) -> Iterator[int]:
    """The leader is held still, and its directory has a high watermark of another log, above the end of this one."""
    cluster = lab.cluster
    leader = cluster.replicas(name).leader
    path = cluster.directories[leader] / HIGH_WATERMARKS
    true = cluster.latest(name, 0)
    pid = cluster.node(leader).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        lines = path.read_text().splitlines()
        foreign = [f"{name} 0 {true + 1_000}" if line.startswith(f"{name} 0 ") else line for line in lines]
        path.write_text("\n".join(foreign) + "\n")
        yield true + 1_000
    finally:
        os.kill(pid, signal.SIGCONT)
    settle(lab)


def spoil_follower(lab: Lab, name: str) -> int:
    """Bytes in the middle of a follower's oldest segment are others; its broker. Nobody reads them before it leads."""
    cluster = lab.cluster
    now = cluster.replicas(name)
    follower = next(one for one in now.all if one != now.leader)
    log = cluster.log(name, follower) / f"{cluster.bases(name, follower)[0]:020d}.log"
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(b"\xff" * 64)
    return follower


def rebuild_follower(lab: Lab, name: str, follower: int) -> None:
    """Its copy of the partition is thrown away; the broker fetches it again."""
    cluster = lab.cluster
    cluster.stop(follower)
    cluster.wait_for(name, lambda now: follower not in now.in_sync, "it is gone")
    for file in cluster.log(name, follower).iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    cluster.start_all()
    settle(lab)


@contextmanager
def open_transaction(lab: Lab, name: str, *, records: int) -> Iterator[Callable[[], None]]:
    """A transaction that is open until what is yielded is called: then it is aborted."""
    writer = Writer(lab.cluster.bootstrap, "lz4", transactional_id=f"open-{name}", batch_bytes=2_048)
    writer.begin(name, [0], records)
    yield lambda: writer.end(abort=True)


def settle(lab: Lab, but: int = 0) -> None:
    """Every topic has a leader and followers in sync (`but` one broker that is down), and its checkpoints say so."""
    for name in lab.topics:
        lab.cluster.wait_for(
            name,
            lambda now: now.leader not in (-1, but) and now.in_sync >= set(now.all) - {but},
            "the cluster has settled",
        )
        lab.cluster.written_down(name)
