"""One ordered story in the real scheduler, on the log dirs of real brokers: copied while the pool is resized, then
expired by size, by time and by log start. After each step all who count say the same.

Who counts: the counters, Spark from the rows, and a recount of the store's listing that no line of the project takes
part in. What should be there follows from what Kafka's own tools said of the log dirs.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from include.tiering.app import App
from include.tiering.configs.airflow_api import AirflowApi
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.pools import COPIER_POOL
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.deletion_run import DeletionOutcome
from local.runs import errors_of, trigger, wait_for_run
from local.secrets_store import ADMIN
from spark_jobs.sizes import parse_arguments, recount
from tests.doubles.airflow_home import COPY, EXPIRATION, SIZES, WAIT_SECONDS, RunningPlatform, running_platform
from tests.doubles.broker_data import broker_data
from tests.doubles.listed_segments import Recount, listed_segments, recounted
from tests.doubles.many_segments import KnownSegment, PartitionName, known_partitions
from tests.doubles.patience import eventually

POOL_SIZE = "remote.log.manager.copier.thread.pool.size"
QUOTA = "tiering.copy.total.max.bytes.per.second"
CRAWL, WALK, RUN = 2_000, 20_000, 100_000_000
BATCHES = 5

ALTER_TOPIC = ("configs", "--alter", "--entity-type", "topics", "--entity-name")
BY_SIZE = "orders", 64 * 1024
"""Topic and retention.bytes. More than a fifth of the topic goes, so the deletion limit asks a person, who approves."""
BY_TIME = "sensor-old", 5_000_000_000
"""Topic and the moment (UTC milliseconds) before which records are too old. They begin in 1970: the first of eight
segments goes, less than a fifth, and nobody is asked; nor is anybody below."""
BY_LOG_START = "payments.v1-eu", 200
"""Topic and the first offset of partition 0 that stays, in the middle of the second segment."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    settings = f"""
    tiering.copier.max.batches = {BATCHES}
    tiering.expiration.max.batches = 1
    tiering.expiration.min.bytes = 0  # no topic is too small for the deletion limit
    """
    brokers = broker_data("public") / "stopped"
    with running_platform(tmp_path_factory.mktemp("platform"), brokers, settings) as started:
        yield started


@pytest.fixture
def app(running: RunningPlatform) -> Iterator[App]:
    with running.library() as opened:
        yield opened


@pytest.mark.timeout(10_000)
def test_copied_and_expired_with_sizes_that_agree(running: RunningPlatform, app: App, spark: SparkSession) -> None:
    # Each step would wake it; what it does is done in this process's Spark instead, which is there already.
    running.api.patch(f"/dags/{SIZES}", {"is_paused": True})
    story = _Story(running, app, spark)
    _copy_while_the_pool_is_resized(running.api, app)

    topic, retention_bytes = BY_SIZE
    running.command(*ALTER_TOPIC, topic, "--add-config", f"retention.bytes={retention_bytes}")
    gone = {name: story.beyond(name, retention_bytes) for name in story.there if name[0] == topic}
    assert {name: len(segments) for name, segments in gone.items()} == {(topic, 0): 4, (topic, 1): 2}
    run_id = story.begin()
    _wait_until(lambda: story.is_asked(run_id), "a person is asked")
    # A plan that waits for its answer changes nothing: what agrees here is what was copied.
    story.require_agreement()
    _wait_until(lambda: story.may_answer(run_id), "the scheduler sees the end of the process that asked")
    story.approve(run_id)
    story.require_expired(run_id, gone, DeletionReason.SIZE, approved=True)
    story.require_agreement()

    topic, oldest_ms = BY_TIME
    retention_ms = time.time_ns() // 1_000_000 - oldest_ms
    running.command(*ALTER_TOPIC, topic, "--add-config", f"retention.ms={retention_ms}")
    first, second, *_ = story.there[topic, 0]
    assert first.max_timestamp_ms < oldest_ms < second.max_timestamp_ms - 600_000
    story.require_expired(story.begin(), {(topic, 0): [first]}, DeletionReason.TIME)
    story.require_agreement()

    topic, offset = BY_LOG_START
    running.command("delete-records", topic, "--partition", "0", "--before-offset", str(offset), "--approve")
    first, second, *_ = story.there[topic, 0]
    assert first.end_offset < offset <= second.end_offset
    story.require_expired(story.begin(), {(topic, 0): [first]}, DeletionReason.LOG_START, log_start_offset=offset)
    story.require_agreement_of_a_size_run()


def _copy_while_the_pool_is_resized(api: AirflowApi, app: App) -> None:
    """1 -> 4 -> 2 slots through Airflow's REST API; batches follow, and who did it is written down."""

    def batches() -> list[dict[str, Any]]:
        return [one for one in _tasks(api, COPY, run_id) if one["task_id"] == "copy"]

    def in_state(state: str) -> int:
        return sum(one["state"] == state for one in batches())

    def resize(slots: int) -> datetime:
        described = api.get(f"/pools/{COPIER_POOL}")["description"]
        began = datetime.now().astimezone()
        api.patch(
            f"/pools/{COPIER_POOL}",
            {"pool": COPIER_POOL, "slots": slots, "include_deferred": False, "description": described},
        )
        return began

    def live_jobs() -> int:
        return len(app.adapters.stores.work.live_batches(COPIER_POOL))

    app.configs.alter(ALL_BROKERS, {POOL_SIZE: "1"}, author="test")
    app.configs.alter(ALL_BROKERS, {QUOTA: str(CRAWL)}, author="test")
    run_id = trigger(api, COPY, {})
    _wait_until(lambda: live_jobs() == 1, "one job begins")
    assert (in_state("running"), len(batches())) == (1, BATCHES)

    grown_at = resize(4)
    _wait_until(lambda: live_jobs() == 4 and in_state("running") == 4, "three more begin")

    shrunk_at = resize(2)
    app.configs.alter(ALL_BROKERS, {QUOTA: str(WALK)}, author="test")
    _wait_until(lambda: live_jobs() == 2, "the surplus jobs end")
    # However long Airflow takes to see it, work is left.
    app.configs.alter(ALL_BROKERS, {QUOTA: str(CRAWL)}, author="test")
    _wait_until(lambda: in_state("running") == 2, "the surplus batches end")
    assert app.adapters.stores.work.has_work(run_id)
    assert in_state("success") == 2
    released_at = datetime.now().astimezone()
    app.configs.alter(ALL_BROKERS, {QUOTA: str(RUN)}, author="test")
    assert wait_for_run(api, COPY, run_id, seconds=WAIT_SECONDS, on_change=print).state == "success"
    assert not app.adapters.stores.work.has_work(run_id)

    spans = sorted((_time(one["start_date"]), _time(one["end_date"])) for one in batches())
    first, *added, last = spans
    assert first[0] < grown_at
    assert all(grown_at < start for start, _ in added)
    # Two ended after their segment, neither of them the one that held its slot first; nobody took their slots.
    surplus = [span for span in added if shrunk_at < span[1] < released_at]
    assert len(surplus) == 2
    assert all(end > released_at for _, end in {first, *added} - {*surplus})
    # Whoever had waited all along began when one of the two slots was free.
    assert last[0] > released_at
    assert sum(end > last[0] for _, end in spans) <= 2
    changes = [one for one in app.adapters.stores.configs.history() if one.name == POOL_SIZE]
    seen = [(one.old_value, one.new_value, one.author) for one in changes]
    assert seen[-2:] == [("1", "4", f"{ADMIN} (Airflow)"), ("4", "2", f"{ADMIN} (Airflow)")]


class _Story:
    """`there` is what should be in the remote log now, by partition, ascending."""

    def __init__(self, running: RunningPlatform, app: App, spark: SparkSession) -> None:
        self._running = running
        self._api = running.api
        self._app = app
        self._spark = spark
        known = known_partitions("public")
        self._local_bytes = {name: partition.local_bytes for name, partition in known.items()}
        self.there = {name: list(partition.eligible) for name, partition in known.items()}

    def beyond(self, name: PartitionName, retention_bytes: int) -> list[KnownSegment]:
        """The oldest segments, as long as what is left, local bytes included, is no less than the limit."""
        left = self._local_bytes[name] + sum(segment.size_bytes for segment in self.there[name])
        found = []
        for segment in self.there[name]:
            left -= segment.size_bytes
            if left < retention_bytes:
                break
            found.append(segment)
        return found

    def begin(self) -> str:
        """A run of `tiering_expiration`; its id."""
        return trigger(self._api, EXPIRATION, {})

    def is_asked(self, run_id: str) -> bool:
        return self._states(run_id).get("approval") == "awaiting_input"

    def may_answer(self, run_id: str) -> bool:
        """An answer that comes before the scheduler has seen this counts as a failure of the process that asked."""
        log = (self._running.layout.component_logs / "scheduler.log").read_text(errors="replace")
        seen = [line for line in log.splitlines() if "TaskInstance Finished" in line and run_id in line]
        return any("task_id=approval" in line and "state=awaiting_input" in line for line in seen)

    def approve(self, run_id: str) -> None:
        question = f"/dags/{EXPIRATION}/dagRuns/{run_id}/taskInstances/approval/-1/hitlDetails"
        self._api.patch(question, {"chosen_options": ["Approve"], "params_input": {}})

    def require_expired(
        self,
        run_id: str,
        gone: Mapping[PartitionName, Sequence[KnownSegment]],
        reason: DeletionReason,
        *,
        approved: bool = False,
        log_start_offset: int | None = None,
    ) -> None:
        """The run deletes exactly `gone`; the log starts behind it, or at `log_start_offset`."""
        self._succeeds(EXPIRATION, run_id)
        assert self._states(run_id)["approval"] == ("success" if approved else "skipped")
        items = self._app.adapters.stores.deletions.items(f"expire-{run_id}")
        assert {(item.planned.reason, item.outcome) for item in items} == {(reason, DeletionOutcome.DELETED)}
        deleted = [(_name(item.planned.segment_id.topic_id_partition), item.planned.start_offset) for item in items]
        assert deleted == [(name, segment.start_offset) for name in sorted(gone) for segment in gone[name]]
        approval = self._app.adapters.stores.deletions.run(f"expire-{run_id}").approval
        assert (approval is not None and approval.author.startswith(f"{ADMIN} ({EXPIRATION} {run_id}")) is approved
        for name, segments in gone.items():
            self.there[name] = self.there[name][len(segments) :]
            assert self._log_start(name) == (log_start_offset or segments[-1].end_offset + 1)

    def require_agreement(self) -> None:
        """Listing, rows, counters and Spark's recount, which compares the listing with the rows as well."""
        output = self._running.layout.state / "recount"
        arguments = ["--output", str(output), "--config", str(self._running.config), "--from-storage", "listing"]
        self._require_agreement(recount(self._spark, self._app, parse_arguments(arguments)), output)

    def require_agreement_of_a_size_run(self) -> None:
        """The same, and the recount is made by the DAG in the scheduler."""
        self._api.patch(f"/dags/{SIZES}", {"is_paused": False})
        self._succeeds(SIZES, trigger(self._api, SIZES, {"from_storage": "listing"}))
        output = self._running.layout.work_dir / "sizes"
        self._require_agreement(json.loads((output / "summary.json").read_text()), output)

    def _require_agreement(self, summary: Mapping[str, Any], output: Path) -> None:
        listed = listed_segments(self._running.layout.remote_storage)
        assert [(one.partition, one.start_offset, one.size_bytes) for one in listed] == [
            (name, one.start_offset, one.size_bytes) for name in sorted(self.there) for one in self.there[name]
        ]
        metadata = self._app.adapters.stores.metadata
        rows = [row.metadata for partition in metadata.partitions() for row in metadata.list_segments(partition)]
        assert all(row.is_finished for row in rows)
        assert {(_name(row.topic_id_partition), str(row.remote_log_segment_id.id)) for row in rows} == {
            (one.partition, one.segment_id) for one in listed
        }
        assert recounted(listed) == self._counters() == _counted_by_spark(output)
        total = {"exit_code": 0, "segments": len(listed), "bytes": sum(one.size_bytes for one in listed)}
        assert {**summary, **total} == summary
        assert (summary["differences"], summary["unsettled"]) == ([], [])
        stored = {"objects": 3 * len(listed), "segments": len(listed), "differences": [], "unsettled": 0}
        assert summary["stored"] | stored == summary["stored"]

    def _succeeds(self, dag_id: str, run_id: str) -> None:
        run = wait_for_run(self._api, dag_id, run_id, seconds=WAIT_SECONDS, on_change=print)
        assert run.state == "success", list(errors_of(self._running.layout.airflow_home / "logs", run))

    def _states(self, run_id: str) -> dict[str, str]:
        """By task, of an expiration; its one batch has the state of the mapped task."""
        return {one["task_id"]: one["state"] for one in _tasks(self._api, EXPIRATION, run_id)}

    def _counters(self) -> Recount:
        return {
            _name(size.topic_id_partition): {
                None: (size.size_bytes, size.segments),
                **{epoch.leader_epoch: (epoch.size_bytes, epoch.segments) for epoch in size.leader_epochs},
            }
            for size in self._app.sizes.partition_sizes()
        }

    def _log_start(self, name: PartitionName) -> int:
        (partition,) = [one for one in self._app.adapters.stores.metadata.partitions() if _name(one) == name]
        return self._app.adapters.stores.metadata.retention_state(partition).log_start_offset


def _counted_by_spark(output: Path) -> Recount:
    counted: dict[PartitionName, dict[int | None, tuple[int, int]]] = defaultdict(dict)
    for row in pq.read_table(output / "sizes").to_pylist():
        assert row["state"] == "COPY_SEGMENT_FINISHED"
        counted[row["topic"], row["partition"]][row["leader_epoch"]] = (row["size_bytes"], row["segments"])
    return counted


def _tasks(api: AirflowApi, dag_id: str, run_id: str) -> list[dict[str, Any]]:
    return list(api.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"])


def _wait_until(holds: Callable[[], bool], what: str) -> None:
    eventually(holds, what, seconds=WAIT_SECONDS, pause_seconds=0.5)


def _name(partition: TopicIdPartition) -> PartitionName:
    return partition.topic, partition.partition


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
