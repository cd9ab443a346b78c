"""An `App` of doubles."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from include.tiering.app import App
from include.tiering.app.sql_stores import Stores
from include.tiering.configs.config_store import ALL_BROKERS, ConfigCheck, ConfigEntity, accept_all
from include.tiering.configs.pools import PoolsStatus, compare_pools, mirrored_pools
from include.tiering.configs.service import AlteredConfigs, alter_configs, asks_for_pools, resize_pools
from include.tiering.copying.copy_batch import BatchResult, UncopiedSegment
from include.tiering.copying.decisions import FollowSource, Skip
from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition, LeftPartition, left_work
from include.tiering.copying.run_scope import RunScope
from include.tiering.database.event_log import Event
from include.tiering.errors import StoreInDoubtError
from include.tiering.kafka.log_dirs.contract import ScanReport, matches
from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import TopicIdPartition
from include.tiering.model.sizes import PartitionSize, PriceTable
from include.tiering.operations.broker_configs import AlteredBrokerConfigs, BrokerListing, alter_broker_configs
from include.tiering.operations.checks import Check
from include.tiering.operations.doctor import Diagnosis
from include.tiering.operations.known_names import Place, unknown_names
from include.tiering.operations.overview import Overview, totals
from include.tiering.operations.readiness import PartitionReadiness, Readiness
from include.tiering.quotas.topic_quotas import NO_TOPIC_QUOTAS
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch
from include.tiering.reading.files import FetchedSegment
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import ALL_TOPICS, BatchProgress, LeaseHolder, WorkItem
from include.tiering.segments.failed_copies import FailedCopy
from include.tiering.segments.sizes_contract import ArchiveSize
from include.tiering.settings import TieringSettings, with_dynamic
from include.tiering.sizes.compare import LogDirDescription
from include.tiering.sizes.report import SizeReport
from include.tiering.verification.plan import RollingSample, VerificationPlan, VerificationSample
from include.tiering.verification.verify_partitions import PartitionReport
from include.tiering.verification.verify_segments import VerifyReport
from tests.doubles import sample_values as sample
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import (
    MemoryConfigStore,
    MemoryMirror,
    MemoryPools,
    MemoryTopicDeletions,
    ScriptedLedger,
)
from tests.doubles.model_brokers import ModelBrokers

# An `App` with canned answers, for tests of what stands in front of it.


class FakeWork:
    """Remembers pauses; everything else is set by the test."""

    def __init__(self) -> None:
        self.paused: set[str] = set()
        self.authors: list[str] = []
        self.run_items: list[WorkItem] = []
        self.reports: list[BatchProgress] = []

    def items(self, run_id: str) -> Sequence[WorkItem]:
        return self.run_items

    def progress(self, run_id: str) -> Sequence[BatchProgress]:
        return self.reports

    def pause(self, topic: str | None, *, author: str) -> None:
        self.paused.add(topic or ALL_TOPICS)
        self.authors.append(author)

    def resume(self, topic: str | None, *, author: str) -> None:
        self.paused.discard(topic or ALL_TOPICS)
        self.authors.append(author)

    def paused_topics(self) -> frozenset[str]:
        return frozenset(self.paused)

    def running_batches(self) -> Sequence[BatchProgress]:
        return self.reports

    def live_batches(self, pool: str) -> Sequence[str]:
        return [report.batch_id for report in self.reports if report.pool == pool]


class FakeFailedCopies:
    """Whatever a test says has failed."""

    def __init__(self) -> None:
        self.copies: list[FailedCopy] = []

    def all(self) -> Sequence[FailedCopy]:
        return self.copies


class FakeApp:
    """`fails` is raised by whatever is asked; `calls` holds every call with its arguments."""

    def __init__(self) -> None:
        self.settings = TieringSettings()
        self.fails: Exception | None = None
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.closed = 0
        self.report: ScanReport = sample.scan_report()
        self.plan: Callable[[str], CopyPlan] = lambda run_id: sample.copy_plan(run_id)
        self.results: list[BatchResult] = []
        self.lease_holder: LeaseHolder | None = None
        self.verified = VerifyReport(2, (), (), 2048, 0.1)
        self.verified_partitions = PartitionReport(1, (), ())
        self.planned_verification: Callable[[str], VerificationPlan] = sample.verification_plan
        self.partition_sizes: list[PartitionSize] = [sample.partition_size()]
        self.log_dir_descriptions: list[LogDirDescription] = []
        self.checks: list[Check] = [Check("schema", True, True, "at head")]
        self.partitions: list[PartitionReadiness] = []
        self.diagnoses: list[Diagnosis] = []
        self.drill: Event | None = None
        self.known = Place(frozenset({"orders", "payments", "audit"}))
        self.skip = Skip(sample.ORDERS_0, OffsetRange(100, 199))
        seen = SeenDivergence(OffsetRange(150, 299), (0, 4), (6,), SeenBy.PLAN)
        held = HeldBackPartition(sample.ORDERS_0, 150, HeldBack.DIVERGENCE, "details", follow_from=200)
        self.follow = FollowSource(sample.ORDERS_0, 200, held, seen, LeaderEpochs.of([(0, 0), (6, 200)]))
        self.fetched: list[FetchedSegment] = []
        self.answer: Callable[[PartitionFetch], FetchedRecords] = FetchedRecords.without_records
        stores = SimpleNamespace(
            work=FakeWork(),
            failed_copies=FakeFailedCopies(),
            configs=MemoryConfigStore(),
            topic_deletions=MemoryTopicDeletions(),
            pool_mirror=MemoryMirror(),
        )
        self.adapters = SimpleNamespace(
            place=SimpleNamespace(directory=None),
            stores=stores,
            brokers=ModelBrokers(),
            quota_ledger=ScriptedLedger(),
            topic_quotas=NO_TOPIC_QUOTAS,
            pools=MemoryPools(),
        )
        self._add_services()
        self.on_batch: Callable[[Callable[[], bool]], None] = lambda parent_alive: None

    @contextmanager
    def open(self, settings: TieringSettings) -> Iterator["FakeApp"]:
        self.settings = settings
        try:
            yield self
        finally:
            self.closed += 1

    def _scan(self, **arguments: Any) -> ScanReport:
        self._called("scan", arguments)
        return self.report

    def _plan_copy(self, run_id: str, **arguments: Any) -> CopyPlan:
        self._called("plan_copy", arguments)
        return self.plan(run_id)

    def _copy_batch(self, run_id: str, batch_id: str, *, parent_alive: Callable[[], bool]) -> BatchResult:
        self._called("copy_batch", {"batch_id": batch_id})
        self.on_batch(parent_alive)
        return self.results.pop(0) if self.results else batch_result()

    def _left_work(self, items: Iterable[WorkItem], *, ended_early: bool) -> tuple[LeftPartition, ...]:
        return left_work(
            items,
            holder=lambda _: self.lease_holder,
            highest_copied=lambda _: None,
            paused=(),
            ended_early=ended_early,
        )

    def _verify(self, run_id: str | None = None, **arguments: Any) -> VerifyReport:
        self._called("verify", {"run_id": run_id, **arguments})
        return self.verified

    def _current_rolling_sample(self, share: float) -> RollingSample | None:
        return RollingSample.of(share, 0) if share else None

    def _plan_verification(self, run_id: str, chosen: VerificationSample, **arguments: Any) -> VerificationPlan:
        self._called("plan_verification", {"sample": chosen, **arguments})
        return self.planned_verification(run_id)

    def _verify_planned(
        self, run_id: str, *, on_read: Callable[[int], None], confirm: Callable[[str], bool] | None
    ) -> VerifyReport:
        self._called("verify_planned", {"run_id": run_id})
        if confirm is not None and not confirm("8 of 9 segments are not in the store"):
            raise StoreInDoubtError("not confirmed")
        on_read(1)
        return self.verified

    def _note_confirmed_losses(self, found: str, *, author: str) -> None:
        self._called("note_confirmed_losses", {"found": found, "author": author})

    def _verify_partitions(self, partitions: Collection[TopicIdPartition]) -> PartitionReport:
        self._called("verify_partitions", {"partitions": partitions})
        return self.verified_partitions

    def _publish_verdicts(self) -> None:
        self._called("publish_verdicts", {})

    def _sizes(self) -> Sequence[PartitionSize]:
        self._called("sizes", {})
        return self.partition_sizes

    def _size_report(self, topics: Collection[str] = (), *, scan_log_dirs: bool = True) -> SizeReport:
        self._called("size_report", {"topics": topics, "scan_log_dirs": scan_log_dirs})
        return SizeReport(
            [size for size in self.partition_sizes if not topics or matches(size.topic_id_partition.topic, topics)]
        )

    def _describe_log_dirs(
        self, topics: Collection[str] = ()
    ) -> tuple[Sequence[LogDirDescription], Sequence[PartitionSize]]:
        self._called("describe_log_dirs", {"topics": topics})
        return self.log_dir_descriptions, self.partition_sizes

    def _readiness(self, *, scope: RunScope) -> Readiness:
        self._called("readiness", {"topics": list(scope.topics)})
        return Readiness(tuple(self.checks), tuple(self.partitions))

    def _diagnose(self, topic: str) -> Sequence[Diagnosis]:
        self._called("diagnose", {"topic": topic})
        return self.diagnoses

    def _plan_skip(self, topic: str, partition: int, topic_id: str | None = None) -> Skip:
        self._called("plan_skip", {"topic": topic, "partition": partition, "topic_id": topic_id})
        return self.skip

    def _plan_follow(self, topic: str, partition: int, from_offset: int, topic_id: str | None = None) -> FollowSource:
        self._called(
            "plan_follow",
            {"topic": topic, "partition": partition, "from_offset": from_offset, "topic_id": topic_id},
        )
        return self.follow

    def _follow_source(self, planned: FollowSource, *, reason: str, author: str) -> FollowSource:
        self._called("follow_source", {"planned": planned, "reason": reason})
        followed = Followed(planned.from_offset, reason, author, 1_700_000_000_000)
        return replace(planned, decided=Divergence(1, planned.seen, 1_600_000_000_000, followed))

    def _skip_offsets(self, planned: Skip, *, reason: str, author: str) -> Skip:
        self._called("skip_offsets", {"planned": planned, "reason": reason})
        if planned.hole is None:
            return planned
        return replace(planned, decisions=(SkippedOffsets(planned.hole, reason, author, 1_700_000_000_000),))

    def _fetch_partition(
        self, partition: TopicIdPartition, output_dir: Path, client: str = ""
    ) -> Iterator[FetchedSegment]:
        self._called("fetch_partition", {"partition": partition, "output_dir": output_dir, "client": client})
        return iter(self.fetched)

    def _fetch_records(self, fetches: Sequence[PartitionFetch], client: str = "") -> Iterator[FetchedRecords]:
        self._called("fetch_records", {"fetches": fetches, "client": client})
        return map(self.answer, fetches)

    def _effective_settings(self) -> TieringSettings:
        self._called("effective_settings", {})
        return with_dynamic(self.settings, self.adapters.stores.configs.of_entity(ALL_BROKERS))

    def _pools_status(self, *, ask_airflow: bool = True) -> PoolsStatus:
        self._called("pools_status", {"ask_airflow": ask_airflow})
        if ask_airflow:
            return compare_pools(self.adapters.pools, self.adapters.stores.pool_mirror, self.adapters.stores.work)
        return mirrored_pools(self.adapters.stores.pool_mirror, self.adapters.stores.work)

    def _overview(self) -> Overview:
        self._called("overview", {})
        stores = self.adapters.stores
        pools = mirrored_pools(stores.pool_mirror, stores.work)
        return Overview(
            0,
            totals(ArchiveSize(0, 0, 0, 0), {}, {}, PriceTable("EUR")),
            stores.work.paused_topics(),
            pools,
            stores.work.running_batches(),
        )

    def _alter_configs(
        self, entity: ConfigEntity, changes: Mapping[str, str | None], *, author: str, check: ConfigCheck = accept_all
    ) -> AlteredConfigs:
        self._called("alter_configs", {"entity": entity, "changes": changes})
        if asks_for_pools(changes):
            return resize_pools(
                entity,
                changes,
                pools=self.adapters.pools,
                mirror=self.adapters.stores.pool_mirror,
                store=self.adapters.stores.configs,
                clock=ManualClock(),
                author=author,
            )
        return alter_configs(
            entity,
            changes,
            store=self.adapters.stores.configs,
            ledger=self.adapters.quota_ledger,
            clock=ManualClock(),
            author=author,
            check=check,
        )

    def _alter_broker_configs(
        self, entity: ConfigEntity, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> AlteredBrokerConfigs:
        self._called("alter_broker_configs", {"entity": entity, "changes": changes, "dry_run": dry_run})
        return alter_broker_configs(
            entity, changes, brokers=self.adapters.brokers, clock=ManualClock(), dry_run=dry_run
        )

    def _describe_broker_configs(self, entity: ConfigEntity | None = None) -> tuple[BrokerListing, ...]:
        self._called("describe_broker_configs", {"entity": entity})
        nodes = self.adapters.brokers.describe().brokers
        return tuple(BrokerListing(one, self.adapters.brokers.broker_configs(one.broker_id)) for one in nodes)

    def _claim_store_if_possible(self) -> str | None:
        self._called("claim_store_if_possible", {})
        return None

    def _migrate(self) -> StoreMarker:
        self._called("migrate", {})
        return StoreMarker("cluster-1", "store-1", 1)

    def _add_services(self) -> None:
        self.copying = SimpleNamespace(
            plan=self._plan_copy,
            run_batch=self._copy_batch,
            left_work=self._left_work,
            plan_skip=self._plan_skip,
            plan_follow=self._plan_follow,
            follow_source=self._follow_source,
            skip_offsets=self._skip_offsets,
        )
        self.log_dirs = SimpleNamespace(scan_all=self._scan)
        self.verification = SimpleNamespace(
            verify_run=self._verify,
            current_rolling_sample=self._current_rolling_sample,
            plan=self._plan_verification,
            run_planned=self._verify_planned,
            note_confirmed_losses=self._note_confirmed_losses,
            verify_partitions=self._verify_partitions,
            publish_verdicts=self._publish_verdicts,
        )
        self.sizes = SimpleNamespace(
            partition_sizes=self._sizes,
            report=self._size_report,
            describe_log_dirs=self._describe_log_dirs,
        )
        self.operations = SimpleNamespace(
            ready=self._readiness,
            names=SimpleNamespace(
                check_topics=lambda names, **_: unknown_names("topic", names or (), [self.known]),
                check_entity=lambda entity, **_: unknown_names("broker", (), [self.known]),
            ),
            diagnose=self._diagnose,
            last_drill=lambda _topic: self.drill,
            monitoring=SimpleNamespace(traffic=lambda: ()),
            overview=SimpleNamespace(now=self._overview),
        )
        self.reading = SimpleNamespace(
            fetch_partition=self._fetch_partition,
            fetch_records=self._fetch_records,
        )
        self.effective_configs = SimpleNamespace(
            settings=self._effective_settings,
        )
        self.configs = SimpleNamespace(
            pools_status=self._pools_status,
            alter=self._alter_configs,
        )
        self.broker_configs = SimpleNamespace(
            alter=self._alter_broker_configs,
            describe=self._describe_broker_configs,
        )
        self.ownership = SimpleNamespace(
            claim_if_possible=self._claim_store_if_possible,
        )
        self.set_up = SimpleNamespace(
            migrate=self._migrate,
        )

    def _called(self, method: str, arguments: dict[str, Any]) -> None:
        if self.fails is not None:
            raise self.fails
        self.calls.append((method, arguments))


def batch_result(
    *failed: WorkItem, ended: BatchEnd = BatchEnd.NO_WORK, retriable: bool = False, seconds: float = 1.0
) -> BatchResult:
    return BatchResult((), tuple(UncopiedSegment(item, retriable) for item in failed), 0, seconds, ended)


# Other parts for an `App`, in the place of those that the settings choose.


def put(app: App, **parts: object) -> None:
    """Put each part where an `App` keeps what has this name: a store, or another adapter; before services are made."""
    known: dict[str, Any] = {name: part for name, part in parts.items() if name in ("engine", "cluster_id")}
    app.adapters.__dict__.update(known)
    for name, part in parts.items():
        if name == "handover_ports":
            app.__dict__[name] = part
        elif hasattr(Stores, name):
            app.adapters.stores.__dict__[name] = part
        else:
            app.adapters.__dict__[name] = part
