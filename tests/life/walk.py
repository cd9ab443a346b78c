"""A walk: events that a seed chooses, one after the other, on five topics, until the time is over."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.life import events, operations
from tests.life.cluster import SPARE, VOTERS
from tests.life.lab import Lab

PATTERN: Final = "walk-*"
PLAIN, PAIR, COMPACTED, TRANSACTIONS = "walk-plain", "walk-pair", "walk-compacted", "walk-transactions"
_NAMED: Final = list(VOTERS)


@dataclass
class Walk:
    """The same seed chooses the same events; how many there are is a matter of time."""

    lab: Lab
    seed: int
    done: Counter[str] = field(default_factory=Counter)
    backups: list[operations.Backup] = field(default_factory=list)
    _random: random.Random = field(init=False)
    _made: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def begin(self) -> None:
        lab = self.lab
        lab.make_topic(PLAIN, [1, 2, 3])
        lab.make_topic(PAIR, [2, 3], config=events.UNCLEAN)
        lab.make_topic(COMPACTED, [3, 1, 2], kind="compacted", config={"cleanup.policy": "compact"})
        lab.make_topic(TRANSACTIONS, [1, 3, 2], kind="transactions")
        for name in lab.topics:
            lab.produce(name, 300)
        lab.observe("begun", PLAIN)

    def run(self, seconds: float, say: Callable[[str], None]) -> None:
        """Until then, or until the first finding; each event is begun and ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.lab.findings:
            event = self._random.choices([one for one, _ in EVENTS], [weight for _, weight in EVENTS])[0]
            before = time.monotonic()
            name = event(self)
            if name is None:
                continue
            title = event.__name__.strip("_").replace("_", " ")
            self.done[title] += 1
            self._write(name)
            # Everything is fetched and compared now and then, and in the end.
            self.lab.observe(title, name, served=self.steps % 4 == 0, decide=self._random.random() < 0.7)
            say(f"{self.steps:4} {title} ({name}), {time.monotonic() - before:.0f} s")

    def end(self) -> None:
        """What waits is decided, and nothing is left that could be archived."""
        lab = self.lab
        if lab.findings:
            return
        if lab.cluster.is_running(SPARE):
            events.retire_spare(lab)
        operations.name_directories(lab, _NAMED)
        operations.wait_for_leases(lab)
        for _ in range(2):
            lab.observe("the walk ends", PLAIN, decide=True)

    @property
    def steps(self) -> int:
        return sum(self.done.values())

    def topic(self, *, replicas: int = 0, plain: bool = False) -> str:
        """Any; one with so many replicas; one that is not compacted."""
        found = [
            name
            for name, topic in sorted(self.lab.topics.items())
            if not (plain and topic.kind == "compacted") and replicas in (0, len(self.lab.cluster.replicas(name).all))
        ]
        return self._random.choice(found)

    def number(self, first: int, last: int) -> int:
        return self._random.randint(first, last)

    def shuffled(self) -> list[int]:
        return self._random.sample(VOTERS, len(VOTERS))

    def new_name(self) -> str:
        self._made += 1
        return f"walk-comes-{self._made}"

    def _write(self, name: str) -> None:
        for one in sorted({name, self.topic()} & set(self.lab.topics)):
            self.lab.produce(one, self.number(20, 250))


def _preferred_election(walk: Walk) -> str:
    name = walk.topic()
    events.elect_another(walk.lab, name)
    return name


def _leader_killed(walk: Walk) -> str:
    name = walk.topic()
    events.kill_leader(walk.lab, name, records=walk.number(1, 200))
    return name


def _leader_killed_while_copies_run(walk: Walk) -> str:
    name = walk.topic(plain=True)
    walk.lab.produce(name, 300)
    running = [platform.begin("copy") for platform in walk.lab.platforms]
    events.kill_leader(walk.lab, name, records=walk.number(1, 50))
    walk.lab.note([one.ended() for one in running])
    return name


def _unclean_election(walk: Walk) -> str | None:
    if walk.lab.cluster.is_running(SPARE):
        return None
    lost, then, copied = walk.number(10, 400), walk.number(0, 500), walk.number(0, 3) > 0
    events.lose_records(walk.lab, PAIR, lost=lost, then=then, copied=copied)
    return PAIR


def _reassigned(walk: Walk) -> str | None:
    if walk.lab.cluster.is_running(SPARE):
        return None
    name = walk.topic()
    events.move_replicas(walk.lab, name)
    return name


def _disk_replaced(walk: Walk) -> str:
    name = walk.topic()
    node = walk.lab.cluster.replicas(name).leader
    if node == SPARE:
        node = walk.number(1, 3)
    events.replace_disk(
        walk.lab, node, lambda: walk.lab.observe("its disk is empty, the broker is down", name, served=False)
    )
    return name


def _broker_replaced(walk: Walk) -> str:
    """Named a while later; or the other way round."""
    lab, name = walk.lab, walk.topic()
    if lab.cluster.is_running(SPARE):
        events.retire_spare(lab)
        operations.name_directories(lab, _NAMED)
        return name
    events.replace_broker(lab, walk.number(1, 3))
    lab.observe("the new broker's directory is not named yet", name, served=False)
    operations.name_directories(lab, [*_NAMED, SPARE])
    return name


def _compacted_for_a_while(walk: Walk) -> str | None:
    """Of the topic that is compacted else: it is not for a while, and then compacted before all was copied."""
    lab = walk.lab
    lab.cluster.alter_topic(COMPACTED, cleanup_policy="delete")
    lab.produce(COMPACTED, walk.number(100, 300))
    lab.observe("the compacted topic is not compacted", COMPACTED, served=False, decide=True)
    lab.produce(COMPACTED, walk.number(100, 300))
    events.compact_for_a_while(lab, COMPACTED, records=walk.number(50, 200))
    return COMPACTED


def _compacted_again(walk: Walk) -> str:
    walk.lab.cluster.alter_topic(COMPACTED, cleanup_policy="compact")
    return COMPACTED


def _topic_created(walk: Walk) -> str:
    name = walk.new_name()
    walk.lab.make_topic(name, walk.shuffled()[: walk.number(2, 3)])
    return name


def _topic_deleted(walk: Walk) -> str | None:
    comes = [name for name in sorted(walk.lab.topics) if name.startswith("walk-comes")]
    if not comes:
        return None
    walk.lab.delete_topic(comes[0])
    return comes[0]


def _topic_created_again(walk: Walk) -> str:
    name = walk.topic(plain=True)
    events.recreate(walk.lab, name, records=walk.number(10, 400))
    return name


def _directory_out_of_sight(walk: Walk) -> str:
    lab, name = walk.lab, walk.topic(plain=True)
    lab.produce(name, 200)
    leader, named = lab.cluster.replicas(name).leader, lab.platforms[0].nodes
    operations.name_directories(lab, [node for node in named if node != leader])
    lab.observe("the leader's directory is not named", name, served=False)
    operations.name_directories(lab, named)
    return name


def _foreign_checkpoint(walk: Walk) -> str:
    lab, name = walk.lab, walk.topic(plain=True)
    (log_dirs,) = (one for one in lab.platforms if one.name == "log dirs")
    with events.foreign_checkpoint(lab, name):
        lab.note([log_dirs.run("copy", "--topic", name)])
    return name


def _records_deleted(walk: Walk) -> str:
    lab, name = walk.lab, walk.topic(plain=True)
    start, end = lab.cluster.earliest(name, 0), lab.cluster.last_stable(name, 0)
    lab.produce(name, walk.number(0, 1) * 300)
    events.delete_records(lab, name, min(end, start + walk.number(1, max(1, end - start))))
    return name


def _retention(walk: Walk) -> str | None:
    """The broker's: what it takes was archived, or was not."""
    lab, name = walk.lab, walk.topic(plain=True)
    lab.produce(name, 300)
    leader = lab.cluster.replicas(name).leader
    sizes = [(lab.cluster.log(name, leader) / f"{base:020d}.log").stat().st_size for base in lab.cluster.bases(name)]
    if len(sizes) < 3:
        return None
    events.expire_at_broker(lab, name, keep_bytes=walk.number(1, sum(sizes[1:])))
    return name


def _our_retention(walk: Walk) -> str:
    name = walk.topic(plain=True)
    operations.expire(walk.lab, name, keep_bytes=walk.number(20_000, 200_000))
    # A backup from before names what is deleted now: whoever puts it back has lost that.
    walk.backups = []
    return name


def _backup(walk: Walk) -> str:
    walk.backups = operations.back_up(walk.lab)
    return PLAIN


def _backup_put_back(walk: Walk) -> str | None:
    if not walk.backups:
        return None
    for backup in walk.backups:
        backup.put_back()
    walk.backups = []
    walk.lab.observe("a backup was put back", PLAIN, served=False)
    operations.take_over(walk.lab)
    return PLAIN


def _follower_spoiled(walk: Walk) -> str:
    lab, name = walk.lab, walk.topic(plain=True)
    lab.produce(name, 100)
    follower = events.spoil_follower(lab, name)
    lab.observe("a follower's replica is spoiled", name, served=False)
    events.rebuild_follower(lab, name, follower)
    return name


def _copies_killed(walk: Walk) -> str:
    name = walk.topic(plain=True)
    walk.lab.produce(name, 500)
    operations.kill_copies(walk.lab)
    return name


def _transaction_open(walk: Walk) -> str:
    lab = walk.lab
    with events.open_transaction(lab, TRANSACTIONS, records=50) as end:
        lab.produce(TRANSACTIONS, 200)
        lab.observe("a transaction is open", TRANSACTIONS, served=False)
        end()
    return TRANSACTIONS


EVENTS: Final[tuple[tuple[Callable[[Walk], str | None], int], ...]] = (
    (_preferred_election, 3),
    (_leader_killed, 2),
    (_leader_killed_while_copies_run, 2),
    (_unclean_election, 3),
    (_reassigned, 2),
    (_disk_replaced, 1),
    (_broker_replaced, 2),
    (_compacted_for_a_while, 1),
    (_compacted_again, 1),
    (_topic_created, 2),
    (_topic_deleted, 1),
    (_topic_created_again, 2),
    (_directory_out_of_sight, 1),
    (_foreign_checkpoint, 2),
    (_records_deleted, 2),
    (_retention, 2),
    (_our_retention, 1),
    (_backup, 2),
    (_backup_put_back, 1),
    (_follower_spoiled, 1),
    (_copies_killed, 1),
    (_transaction_open, 1),
)
