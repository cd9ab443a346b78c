"""`./tiering` killed with -9 at each step of a copy from a real broker's leader: the next one ends the work.

Each case starts the command as a process, sees it die where planned, compares what it leaves with the crash table of
`copy_segment` and of `cut_log`, and lets another process go on. Nothing is half done then, and nothing is left over.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from include.tiering.app import App, open_app
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.settings import load_settings
from tests.doubles.broker_deployment import leaders_settings, new_deployment
from tests.doubles.copied_state import fetched
from tests.doubles.copy_process import kill_worker, run_worker, worker_template
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.patience import eventually

pytestmark = pytest.mark.kafka

TOPIC: Final = "killed"
SEGMENT_BYTES: Final = 5 << 20
"""More than one request asks for: so a process can die between two reads of a segment."""
SEGMENTS: Final = 3
LEASE_MS: Final = 4_000
WORKER: Final = "command_worker"

FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


class Kill(NamedTuple):
    """The process dies at the `number`-th `call`, and the database has segments in these states then."""

    when: str
    call: str
    number: int
    left: Sequence[RemoteLogSegmentState]

    def __str__(self) -> str:
        return f"{self.when}-{self.call}-{self.number}"

    @property
    def options(self) -> tuple[str, ...]:
        return "--kill", self.when, "--call", self.call, "--number", str(self.number)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three segments and a part of one: all codecs, transactions, aborts, large records, three leader epochs."""
    require_kafka()
    with kafka_cluster(tmp_path_factory.mktemp("killed") / "kafka") as started:
        started.create_topic(TOPIC, segment_bytes=None, config={"segment.bytes": str(SEGMENT_BYTES)})
        for seed in range(2):
            mixed_records(started.bootstrap, TOPIC, [0], count=100, seed=seed)
            Writer(started.bootstrap, seed=seed).send(TOPIC, [0], 15, value_bytes=600_000)
            started.restart()
        mixed_records(started.bootstrap, TOPIC, [0], count=20, seed=2)
        assert len(started.local_segments(TOPIC, 0)) == SEGMENTS + 1
        yield started


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with worker_template():
        yield


@dataclass(frozen=True)
class Platform:
    """A deployment of its own: nothing of the broker changes, so all cases share it."""

    directory: Path
    config: Path

    def opened(self) -> AbstractContextManager[App]:
        return open_app(load_settings(self.config))

    def run(self, command: str) -> None:
        assert run_worker(str(self.config), "--command", command, worker=WORKER) == 0, command

    def kill(self, kill: Kill, command: str) -> None:
        """Wait until no dead process has a lease; then start the command, and see it die."""
        self.wait_for_leases()
        kill_worker(str(self.config), "--command", command, *kill.options, worker=WORKER)
        assert self.states() == list(kill.left), "it died elsewhere"
        assert list((self.directory / "spool").iterdir()) == []

    def wait_for_leases(self) -> None:
        with self.opened() as app:
            work = app.adapters.stores.work
            eventually(lambda: not work.live_leases(), "the leases of the dead process have ended")

    def states(self) -> list[RemoteLogSegmentState]:
        with self.opened() as app:
            metadata = app.adapters.stores.metadata
            return [row.metadata.state for found in metadata.partitions() for row in metadata.list_segments(found)]

    def ranges(self) -> int:
        """How many ranges are recorded that are closed."""
        with self.opened() as app:
            replicas = app.adapters.source.scan(topics=[TOPIC]).replicas
            return sum(not segment.active for replica in replicas for segment in replica.segments)


@pytest.fixture
def platform(cluster: KafkaCluster, tmp_path: Path) -> Platform:
    (tmp_path / "spool").mkdir()
    settings = (
        *leaders_settings(tmp_path / "spool"),
        f"tiering.copier.lease.ms = {LEASE_MS}",
        # What a killed worker leaves is known exactly with one transfer at a time.
        "tiering.copier.max.transfers = 1",
    )
    return Platform(tmp_path, new_deployment(tmp_path, [TOPIC], cluster.bootstrap, tmp_path / "store", *settings))


def require_ended(cluster: KafkaCluster, platform: Platform) -> None:
    """Another process ends the work; the store has the broker's bytes, each once, and not one file more."""
    platform.wait_for_leases()
    platform.run("copy")
    logs = sorted(cluster.partition_dir(TOPIC, 0).glob("*.log"))
    theirs = b"".join(log.read_bytes() for log in logs)
    with platform.opened() as app:
        metadata, storage = app.adapters.stores.metadata, app.adapters.storage
        (partition,) = metadata.partitions()
        rows = [row.metadata for row in metadata.list_segments(partition)]
        assert {row.state for row in rows} == {FINISHED}
        assert len(rows) == SEGMENTS
        stored = [fetched(app, row) for row in rows]
        assert [len(log) for log in stored] == [log.stat().st_size for log in logs[:-1]]
        assert theirs.startswith(b"".join(stored))
        keys = {found.key for row in rows for found in storage.stat_log_segment(row)}
        assert {key for key, _ in storage.list_objects()} - keys == {"_tiering-store.json"}
    files = {path for path in (platform.directory / "store").rglob("*") if path.is_file()}
    assert len(files) == len(keys) + 1
    assert list((platform.directory / "spool").iterdir()) == []
    platform.run("verify --all --depth deep")
    platform.run("audit")


FINDING: Final = [
    Kill("after", "fetch", 2, []),
    Kill("before", "record", 1, []),
    Kill("after", "record", 1, []),
]


@pytest.mark.parametrize("kill", FINDING, ids=str)
def test_while_segments_are_found(cluster: KafkaCluster, platform: Platform, kill: Kill) -> None:
    platform.kill(kill, "copy")
    assert platform.ranges() == (SEGMENTS if (kill.when, kill.call) == ("after", "record") else 0)
    require_ended(cluster, platform)


COPYING: Final = [
    Kill("before", "save_plan", 1, []),
    Kill("after", "save_plan", 1, []),
    Kill("before", "claim", 1, []),
    Kill("after", "claim", 1, []),
    # The second of three segments, from here on.
    Kill("before", "fetch", 3, [FINISHED]),
    Kill("after", "fetch", 3, [FINISHED]),
    Kill("after", "fetch", 4, [FINISHED]),
    Kill("before", "add_segment", 2, [FINISHED]),
    Kill("after", "add_segment", 2, [FINISHED, STARTED]),
    *(Kill(when, "put", number, [FINISHED, STARTED]) for number in (4, 5, 6) for when in ("before", "within", "after")),
    Kill("before", "update_segment", 2, [FINISHED, STARTED]),
    Kill("after", "update_segment", 2, [FINISHED, FINISHED]),
    Kill("before", "record_outcome", 2, [FINISHED, FINISHED]),
    Kill("after", "record_outcome", 2, [FINISHED, FINISHED]),
    Kill("before", "release", 1, [FINISHED] * SEGMENTS),
    Kill("after", "release", 1, [FINISHED] * SEGMENTS),
]


@pytest.mark.parametrize("kill", COPYING, ids=str)
def test_while_segments_are_copied(cluster: KafkaCluster, platform: Platform, kill: Kill) -> None:
    platform.run("plan")
    platform.kill(kill, "copy")
    require_ended(cluster, platform)


CLEANING_UP: Final = [
    Kill("before", "advance_deletion", 1, [FINISHED, STARTED]),
    Kill("after", "advance_deletion", 1, [FINISHED, DELETING]),
    Kill("after", "delete", 1, [FINISHED, DELETING]),
    Kill("after", "advance_deletion", 2, [FINISHED]),
]


@pytest.mark.parametrize("kill", CLEANING_UP, ids=str)
def test_while_what_a_killed_process_left_is_cleaned_up(cluster: KafkaCluster, platform: Platform, kill: Kill) -> None:
    platform.run("plan")
    platform.kill(Kill("within", "put", 5, [FINISHED, STARTED]), "copy")
    platform.kill(kill, "copy")
    require_ended(cluster, platform)
