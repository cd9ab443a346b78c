"""A deployment that has only bootstrap servers: its services over leaders in memory."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from include.tiering.app import App, open_app
from include.tiering.copying.copy_batch import BatchResult
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.report import present_scan
from include.tiering.errors import BrokersForbiddenError, BrokersUnavailableError, SettingError, TieringError
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.segments import TopicIdPartition
from include.tiering.operations.doctor import Cause
from include.tiering.operations.known_names import KnownNames
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.runs.contract import ANYWHERE
from include.tiering.segments.contract import SegmentRow
from include.tiering.settings import load_settings
from tests.doubles.deployment import Crash
from tests.doubles.leader_logs import ModelLogs, headers_of
from tests.doubles.model_brokers import ModelBrokers
from tests.doubles.patience import eventually
from tests.doubles.quotas import SameLimiter
from tests.doubles.record_batches import record_batch
from tests.unit.copying.test_copy_from_leaders import altered

BATCH = len(record_batch(0, count=5))
LOG = b"".join(record_batch(base, count=5, leader_epoch=base // 20) for base in range(0, 35, 5))
RANGES = [(0, 9), (10, 19), (20, 29)]


class Leaders:
    """`orders-0`: three ranges of two batches, and a batch that closes the last of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.brokers = ModelBrokers(brokers=(1, 2))
        configs = {"min.insync.replicas": "2", "segment.bytes": str(2 * BATCH)}
        self.partition = TopicIdPartition(self.brokers.create_topic("orders", configs=configs), 0, "orders")
        self.logs = ModelLogs(self.brokers, {self.partition: LOG})
        self.model = self.brokers.partition(self.partition.topic_id, 0)
        self.model.high_watermark = 35
        self.model.leader_epoch, self.model.log_bytes = 1, len(LOG)
        self.model.replicas = self.model.isr = (1, 2)
        self.reached: Callable[[CopyStep, int], None] = lambda _step, _offset: None

    @contextmanager
    def opened(self, **more: str) -> Iterator[App]:
        """A process of the deployment."""
        environ = {
            "HOME": str(self.root),
            "TIERING_CLUSTER__BOOTSTRAP_SERVERS": "localhost:1",
            "TIERING_LEADERS__SPOOL_DIRECTORY": str(self.root),
            "TIERING_METADATA__URL": f"sqlite:///{self.root / 'metadata.sqlite'}",
            "TIERING_REMOTE_STORAGE__URL": (self.root / "store").as_uri(),
            "TIERING_TOPICS__INCLUDE": "orders",
            **more,
        }
        observe: Any = lambda step, _partition, offset: self.reached(step, offset)  # noqa: E731
        quotas: Any = SameLimiter(UnlimitedBytes())
        with open_app(load_settings(environ=environ), quotas=quotas, observe=observe) as app:
            adapters: Any = app.adapters
            adapters.brokers = self.brokers
            adapters.leader_logs = LogsOfProcess(self.logs)
            yield app

    def copy(self, run_id: str) -> BatchResult:
        """Plan and copy, in a process of its own."""
        with self.opened() as app:
            app.copying.plan(run_id)
            return app.copying.run_batch(run_id, f"{run_id}.0")

    def copied(self) -> list[SegmentRow]:
        with self.opened() as app:
            return [
                row for row in app.adapters.stores.metadata.list_segments(self.partition) if row.metadata.is_finished
            ]

    def offsets(self) -> list[tuple[int, int]]:
        """Of what is FINISHED, all of which has the bytes of the log."""
        copied = self.copied()
        with self.opened() as app:
            for row in copied:
                stored = b"".join(app.adapters.storage.fetch_log_segment(row.metadata, limiter=UnlimitedBytes()))
                assert stored == bytes_between(row.metadata.start_offset, row.metadata.end_offset)
        return [(row.metadata.start_offset, row.metadata.end_offset) for row in copied]


class LogsOfProcess:
    """What a process closes."""

    def __init__(self, logs: ModelLogs) -> None:
        self.read = logs.read
        self.epoch_end = logs.epoch_end

    def close(self) -> None:
        """Nothing is open."""


def bytes_between(base: int, end: int) -> bytes:
    return b"".join(
        LOG[position : position + header.size_bytes]
        for position, header in headers_of(LOG)
        if base <= header.base_offset and header.last_offset <= end
    )


@pytest.fixture
def leaders(tmp_path: Path) -> Leaders:
    made = Leaders(tmp_path)
    with made.opened() as app:
        app.set_up.migrate()
    return made


def test_nothing_but_the_plan_of_a_copy_reads_logs_to_find_segments(leaders: Leaders) -> None:
    with leaders.opened() as app:
        report = app.log_dirs.scan_all()
        (replica,) = report.replicas
        assert (replica.segments, replica.unread_offsets) == ((), 35)
        assert "35 offsets of a log of 1.3 KiB that the next plan of a copy reads" in str(
            present_scan(report).tables()[0].rows
        )
        readiness = app.operations.ready()
        assert readiness.ready, readiness.missing
        (diagnosis,) = app.operations.diagnose("orders")
        assert (diagnosis.cause, diagnosis.finding.split(",")[0]) == (
            Cause.WAITS_FOR_A_RUN,
            "35 offsets from 0 on are not read yet",
        )
        assert leaders.logs.reads == []
        plan = app.copying.plan("run", dry_run=True)
        assert [segment.base_offset for segment in plan.partitions[0].segments] == [0, 10, 20]
        assert plan.partitions[0].placement == ANYWHERE
        (diagnosis,) = app.operations.diagnose("orders")
        assert (diagnosis.cause, diagnosis.finding.split(",")[0]) == (Cause.WAITS_FOR_A_RUN, "3 segments")
        reads = len(leaders.logs.reads)
        assert app.copying.plan("run").segments == 3
        assert len(leaders.logs.reads) == reads


def test_a_copy_from_leaders_is_like_every_other(leaders: Leaders) -> None:
    assert leaders.copy("run").failed == ()
    assert leaders.offsets() == RANGES
    with leaders.opened() as app:
        (diagnosis,) = app.operations.diagnose("orders")
        assert diagnosis.cause is Cause.UP_TO_DATE
        tiers = app.sizes.report().tiers
        assert tiers is not None
        assert [lag.size_bytes for lag in tiers.copy_lags] == [0]
        assert [duplicate.size_bytes for duplicate in tiers.duplicates] == [6 * BATCH]
        assert app.copying.plan("again").segments == 0
        assert app.operations.ready().ready


def test_what_is_not_read_yet_is_lag_by_the_size_of_the_log(leaders: Leaders) -> None:
    leaders.copy("run")
    more = b"".join(record_batch(base, count=5, leader_epoch=1) for base in range(35, 60, 5))
    leaders.logs.logs[leaders.partition] += more
    leaders.model.high_watermark, leaders.model.log_bytes = 60, len(LOG + more)
    reads = len(leaders.logs.reads)
    with leaders.opened() as app:
        tiers = app.sizes.report().tiers
        assert tiers is not None
        (lag,) = tiers.copy_lags
        # Without the last two batches: so many may be in the active segment.
        assert (lag.size_bytes, lag.segments) == (3 * BATCH, 2)
        leaders.brokers.fail("log_sizes", BrokersForbiddenError("not authorised"), times=None)
        tiers = app.sizes.report().tiers
        assert tiers is not None
        assert [lag.size_bytes for lag in tiers.copy_lags] == [0]
    assert len(leaders.logs.reads) == reads


def test_who_only_observes_asks_no_broker_for_sizes(leaders: Leaders) -> None:
    leaders.brokers.fail("cluster_id", BrokersUnavailableError("no answer"), times=None)
    with leaders.opened(TIERING_TOPICS__INCLUDE="") as app:
        assert app.sizes.report().tiers is None


def test_what_is_not_read_again_yet_is_no_divergence(leaders: Leaders) -> None:
    """As after a change from log directories: the archive has epochs that the ranges found so far do not reach."""
    leaders.copy("run")
    with leaders.opened() as app:
        app.adapters.stores.fetched_ranges.forget(leaders.partition, 10, reason="a test")
        (replica,) = app.log_dirs.scan_all().replicas
        assert (replica.found_to, len(replica.leader_epochs.entries)) == (10, 1)
        plan = app.copying.plan("interrupted", parent_alive=lambda: False)
        assert plan.held_back == ()
        assert not app.adapters.stores.metadata.divergences(leaders.partition)
        assert app.adapters.stores.metadata.retention_state(leaders.partition).leader_epochs.entries[-1].epoch == 1
    leaders.copy("again")
    assert leaders.offsets() == RANGES


def test_a_topic_that_is_not_replicated_waits_until_its_segments_are_known_for_a_while(leaders: Leaders) -> None:
    leaders.brokers.alter_topic_configs("orders", {"min.insync.replicas": "1"})
    with leaders.opened() as app:
        (held_back,) = app.copying.plan("run").held_back
        assert held_back.ineligible is IneligibleReason.NOT_FLUSHED
        (diagnosis,) = app.operations.diagnose("orders")
        assert (diagnosis.cause, diagnosis.advice.split(",")[0]) == (Cause.NOT_ELIGIBLE, "wait a minute")


def test_a_paused_topic_is_not_read(leaders: Leaders) -> None:
    with leaders.opened() as app:
        app.adapters.stores.work.pause("orders", author="a test")
        plan = app.copying.plan("run")
        assert (plan.segments, plan.errors, leaders.logs.reads) == (0, (), [])


def test_an_interrupted_command_reads_no_more(leaders: Leaders) -> None:
    with leaders.opened() as app:
        assert app.copying.plan("run", parent_alive=lambda: False).segments == 0
    assert leaders.logs.reads == []


def test_a_handover_asks_the_brokers_for_the_space_on_their_disks(leaders: Leaders) -> None:
    with leaders.opened() as app:
        ports = app.handover_ports
        assert ports.source is app.adapters.source
        leaders.brokers.disk_free_bytes = {1: 77}
        assert (ports.actions.free_bytes(1), ports.actions.free_bytes(2)) == (77, None)
        leaders.brokers.fail("free_bytes", BrokersForbiddenError("not authorised"), times=None)
        with pytest.raises(BrokersForbiddenError):
            ports.actions.free_bytes(1)


def test_log_dirs_are_not_described_if_none_is_named(leaders: Leaders) -> None:
    with leaders.opened() as app, pytest.raises(SettingError, match="log_dirs is empty"):
        app.sizes.describe_log_dirs()


def test_topics_of_the_brokers_are_known_names(leaders: Leaders) -> None:
    with leaders.opened() as app:
        names: KnownNames = app.operations.names
        assert names.check_topics(["orders"], how="allow it") == ()
        with pytest.raises(SettingError, match="paymentz"):
            names.check_topics(["paymentz"], how="allow it")


@pytest.mark.parametrize("step", [step for step in CopyStep if not step.startswith(("delete", "objects"))])
def test_a_worker_that_dies_after_a_step_is_followed_by_another(leaders: Leaders, step: CopyStep) -> None:
    def die(reached: CopyStep, offset: int) -> None:
        if (reached, offset) == (step, 10):
            leaders.reached = lambda _step, _offset: None
            raise Crash

    leaders.reached = die
    with pytest.raises(Crash):
        leaders.copy("run")
    for number in range(3):
        leaders.copy(f"again-{number}")
    assert leaders.offsets() == RANGES


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda world: setattr(world.model, "leader_epoch", 2), RANGES),
        (lambda world: setattr(world.model, "leader", 2), RANGES),
        (lambda world: setattr(world.model, "earliest", 20), RANGES[:1]),
        (lambda world: world.brokers.create_topic("orders"), RANGES[:1]),
        (lambda world: world.brokers.delete_topic("orders"), RANGES[:1]),
        (lambda world: world.brokers.alter_topic_configs("orders", {"remote.storage.enable": "true"}), RANGES[:1]),
    ],
    ids=["elected-again", "moved", "log-start-raised", "created-again", "deleted", "tiered-by-brokers"],
)
def test_a_change_before_finished_leaves_nothing_finished(
    leaders: Leaders, change: Callable[[Leaders], None], left: list[tuple[int, int]]
) -> None:
    def reach(reached: CopyStep, offset: int) -> None:
        if (reached, offset) == (CopyStep.VERIFIED, 10):
            # The segment before it is under way at the same time.
            eventually(lambda: leaders.offsets() == RANGES[:1], "the first segment is FINISHED")
            change(leaders)

    leaders.reached = reach
    leaders.copy("run")
    assert leaders.offsets() == RANGES[:1]
    leaders.reached = lambda _step, _offset: None
    for number in range(2):
        try_to(partial(leaders.copy, f"again-{number}"))
    assert leaders.offsets() == left


@pytest.mark.parametrize("seed", range(3))
def test_behind_a_lying_proxy_nothing_wrong_is_finished_and_the_work_is_done(leaders: Leaders, seed: int) -> None:
    source = random.Random(seed)
    leaders.logs.alter = lambda records: altered(records, source) if source.random() < 0.5 else records
    for number in range(40):
        try_to(partial(leaders.copy, f"run-{number}"))
        if leaders.offsets() == RANGES:
            return
    raise AssertionError(f"copied only {leaders.offsets()}")


def try_to(copy: Callable[[], object]) -> None:
    try:
        copy()
    except TieringError:
        return
