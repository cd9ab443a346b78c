"""The checks of a deployment before a run starts.

They concern the schema, the store, log directories, cluster metadata, pauses, handovers, leases, the quota ledger,
suite files, the pool, and what is paused in Airflow.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from sqlalchemy import Engine

from include.tiering.audit.record import AuditStore
from include.tiering.configs.config_store import ConfigStore, topic_quota_configs
from include.tiering.configs.pools import (
    BATCH_SLOTS,
    EXPIRATION_POOL,
    READER_POOL,
    PoolMirror,
    pool_missing,
)
from include.tiering.configs.rules import quotas_in_force
from include.tiering.database.event_log import EventLog
from include.tiering.database.migrations import HEAD, require_head
from include.tiering.errors import (
    AirflowApiError,
    ClusterMetadataError,
    HandoverForgottenError,
    MetadataUnavailableError,
    RemoteStorageFullError,
    SendingStoppedError,
    SettingError,
    SourceError,
)
from include.tiering.handover.contract import WATCH_DAG_ID, HandoverStore, forgotten_handovers
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.kafka.log_dirs.dirs import DirIdentity, identify, require_agreement
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.operations.checks import Concern, Probe
from include.tiering.operations.known_names import NamedStores
from include.tiering.presentation import count
from include.tiering.quotas.contract import QuotaLedger
from include.tiering.remote_storage.claim_store import SETTLE_SECONDS, StoreGenerations
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.segment_storage import GuardedStorage
from include.tiering.runs.approval import PlanQuestions
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs, configured_log_dirs
from include.tiering.runs.contract import ALL_TOPICS, WorkStore, require_no_lease_ahead
from include.tiering.runs.deletion_run import DeletionStore
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.failed_copies import FailedCopies
from include.tiering.segments.ingestion_contract import MetadataIngestion
from include.tiering.segments.topics import TopicDeletions
from include.tiering.settings import TieringSettings

LOG_DIRS: Final = "log dirs"
CLUSTER_METADATA: Final = "topic facts"
PAUSE: Final = "pause"
HANDOVERS: Final = "hand-overs"
LEASES: Final = "leases"
QUOTAS: Final = "quotas"
SUITES: Final = "suites"
DAGS: Final = "dags"


class Publications(Protocol):
    """What the platform published to the brokers' metadata topic."""

    def held_segments(self, partition: TopicIdPartition) -> Collection[Uuid]:
        """Return the segments that brokers may have, so their objects must not be deleted."""
        ...


class ClusterStores(NamedStores, Protocol):
    """The stores that readiness is read from.

    They exist once the database serves a cluster. Until then an access raises MetadataUnavailableError, which becomes
    the message of the check.
    """

    @property
    def metadata(self) -> RemoteLogMetadata:
        """Segment metadata."""

    @property
    def failed_copies(self) -> FailedCopies:
        """Copies that failed verification."""

    @property
    def topic_deletions(self) -> TopicDeletions:
        """Topics that were deleted in the cluster."""

    @property
    def ingestion(self) -> MetadataIngestion:
        """Progress of reading the brokers' metadata topic."""

    @property
    def work(self) -> WorkStore:
        """Leases and pauses."""

    @property
    def handovers(self) -> HandoverStore:
        """Handovers of topics to their brokers."""

    @property
    def publications(self) -> Publications:
        """Published records."""

    @property
    def events(self) -> EventLog:
        """What was decided and done."""

    @property
    def configs(self) -> ConfigStore:
        """Dynamic configs."""

    @property
    def pool_mirror(self) -> PoolMirror:
        """Sizes of Airflow's pools."""

    @property
    def plan_questions(self) -> PlanQuestions:
        """Questions about plans that wait for a person."""

    @property
    def deletions(self) -> DeletionStore:
        """Runs that delete segments."""

    @property
    def audits(self) -> AuditStore:
        """Audits and their findings."""

    @property
    def generations(self) -> StoreGenerations:
        """Generations of the store's marker."""


class DeploymentChecks:
    """The checks of a deployment. Each one opens what it needs, so that its message says what cannot be opened."""

    def __init__(
        self,
        *,
        settings: TieringSettings,
        engine: Callable[[], Engine],
        cluster_id: Callable[[], str],
        stores: Callable[[], ClusterStores],
        storage: Callable[[], GuardedStorage],
        unguarded: Callable[[], RemoteStorage],
        cluster_metadata: Callable[[], ClusterMetadata],
        log_dirs: ClusterLogDirs,
        has_brokers: bool,
        ledger: Callable[[], QuotaLedger],
        suite_files: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._cluster_id = cluster_id
        self._stores = stores
        self._storage = storage
        self._unguarded = unguarded
        self._cluster_metadata = cluster_metadata
        self._log_dirs = log_dirs
        self._has_brokers = has_brokers
        self._ledger = ledger
        self._suite_files = suite_files

    def probes(self, pool: str | None, in_airflow: Collection[str] | None, *, needs_log_dirs: bool) -> dict[str, Probe]:
        """Return the probes for `run_checks`, by name: each returns what it found or raises a TieringError.

        Args:
            pool: the pool whose size is checked; for the pool of expiration, a store without free space passes. None:
                the check tells which DAGs are paused, instead of a pool's size.
            in_airflow: the names of the pools that Airflow has now; None: unknown.
            needs_log_dirs: whether settings with neither log_dirs nor bootstrap servers are an error. False for work
                that also has to run after the brokers were shut down permanently.
        """
        probes: dict[str, Probe] = {
            "schema": self._schema,
            "storage": self._check_storage_for_deletions if pool == EXPIRATION_POOL else self._check_storage,
            LOG_DIRS: partial(self._check_log_dirs, needed=needs_log_dirs),
            CLUSTER_METADATA: self._check_cluster_metadata,
            PAUSE: self._pause,
            HANDOVERS: self._check_handovers,
            LEASES: lambda: require_no_lease_ahead(self._stores().work.leases_ahead()),
            QUOTAS: self._check_quotas,
            SUITES: self._suite_files,
        }
        return probes | ({DAGS: self._check_dags} if pool is None else {"pool": partial(self._pool, pool, in_airflow)})

    def _schema(self) -> str:
        require_head(self._engine())
        return f"at {HEAD}, cluster {self._cluster_id()}"

    def _check_storage(self) -> str:
        url = self._settings.remote_storage.required_url()
        if not self._serves_a_cluster():
            marker = self._unguarded().read_marker()
            belongs = "has no marker of a database" if marker is None else f"belongs to {marker}"
            raise MetadataUnavailableError(
                f"{url} can be read and {belongs}; whether it can be written is tried only once there is a database"
            )
        self._storage().check_writable()
        is_conditional = self._unguarded().replaces_conditionally()
        self._stores().generations.record_conditional_writes(is_conditional)
        found = f"{url} is writable and belongs to this database"
        if is_conditional:
            return found
        return (
            f"{found}; this server ignores If-Match on PUT, so a copy of the"
            f" database that plans within {SETTLE_SECONDS:.0f} seconds of this one may not be refused at once: use a"
            " server that supports it"
        )

    def _check_storage_for_deletions(self) -> str:
        """Check the store for deletions, which need no free space, but free some."""
        try:
            return self._check_storage()
        except RemoteStorageFullError as error:
            return f"belongs to this database; it has no space, which deletions do not need: {error}"

    def _serves_a_cluster(self) -> bool:
        """Return whether the database can be read and is set up; the check of the schema says why not."""
        with suppress(MetadataUnavailableError, SettingError):
            self._cluster_id()
            return True
        return False

    def _check_log_dirs(self, *, needed: bool) -> str | Concern:
        """Check the log directories. Unreadable ones delay their partitions; the check fails if all are unreadable.

        Those that only workers of a queue can read are not checked here: these workers report them.
        """
        if not self._settings.log_dirs and (self._has_brokers or not needed):
            return "none is set" + ("; segments are read from the leaders" if self._has_brokers else "")
        unreadable: list[SourceError] = []
        seen: list[DirIdentity] = []
        expected = self._cluster_id() if self._serves_a_cluster() else None
        elsewhere = self._log_dirs.elsewhere()
        away = {log_dir for log_dirs in elsewhere.values() for log_dir in log_dirs}
        for log_dir in configured_log_dirs(self._settings):
            if log_dir in away:
                continue
            try:
                identity = identify(log_dir)
                require_agreement(identity, seen, identity.cluster_id)
            except SourceError as error:
                unreadable.append(error)
                continue
            except ClusterMetadataError as error:
                # The settings contradict the directory: waiting does not change that.
                raise SettingError(f"{error}: correct log_dirs") from error
            seen.append(identity)
            if expected not in (None, identity.cluster_id):
                raise SettingError(f"{identity.path} belongs to cluster {identity.cluster_id}, not {expected}")
        total = len(configured_log_dirs(self._settings)) - len(away)
        if not unreadable:
            placed = f"{len(away)} read by workers of queue {', '.join(elsewhere)}"
            return ", ".join([*([f"{total} readable"] if total else []), *([placed] if away else [])])
        if len(unreadable) == total and not away:
            raise unreadable[0]
        waiting = "; ".join(map(str, unreadable))
        return Concern(
            f"{total - len(unreadable)} of {total} readable; partitions of the others wait: {waiting}: correct"
            " log_dirs, or make the directories readable"
        )

    def _check_cluster_metadata(self) -> str:
        self._log_dirs.require_cluster()
        self._cluster_metadata().refresh()
        if self._has_brokers:
            return "read from the brokers, with exact offsets"
        if self._cluster_metadata().cluster_id() is None:
            return "none: a topic is copied only if topics.include has its exact name"
        return "known"

    def _pause(self) -> str:
        paused = self._stores().work.paused_topics()
        if ALL_TOPICS in paused:
            raise SendingStoppedError("all topics are paused: ./tiering resume")
        return f"paused topics: {', '.join(sorted(paused))}" if paused else "nothing is paused"

    def _check_handovers(self) -> str:
        """Describe the open handovers.

        Raises:
            HandoverForgottenError: a handover has made no progress for too long. Other work goes on; only the retention
                or the copies of its topic are suspended.
        """
        store = self._stores().handovers
        under_way = store.open_handovers()
        if forgotten := forgotten_handovers(under_way, store.now_ms()):
            raise HandoverForgottenError("; ".join(forgotten_handover.message for forgotten_handover in forgotten))
        return ", ".join(f"{handover.topic} is at {handover.step}" for handover in under_way) or "none is under way"

    def _check_dags(self) -> str | Concern:
        """Name the DAGs that are paused in Airflow. A new DAG is paused unless Airflow is configured otherwise."""
        # Its HTTP client takes half a second to import: only `./tiering ready` waits for it.
        from include.tiering.configs.airflow_api import dags_in_airflow

        try:
            dags = dags_in_airflow(self._settings.airflow)
        except AirflowApiError as error:
            return f"whether DAGs are paused in Airflow is not known: {error}"
        if not dags:
            return "Airflow shows no DAG of the platform: it has not parsed them, or hides them from this login"
        paused = [dag_id for dag_id, is_paused in dags.items() if is_paused]
        if not paused:
            return f"none of {count(len(dags), 'DAG')} is paused in Airflow"
        if WATCH_DAG_ID in paused and (topics := self._handed_over()):
            return Concern(
                f"{WATCH_DAG_ID} is paused in Airflow, so nobody is told if the handover of {', '.join(topics)} stops:"
                f" `airflow dags unpause {WATCH_DAG_ID}`; paused are {', '.join(paused)}"
            )
        return (
            f"paused in Airflow, so that no run of them begins: {', '.join(paused)}; `airflow dags unpause DAG` for"
            " each that is not paused on purpose"
        )

    def _handed_over(self) -> list[str]:
        """Return the topics whose handover is open; none if the database does not answer, which another check says."""
        with suppress(MetadataUnavailableError):
            return [handover.topic for handover in self._stores().handovers.open_handovers()]
        return []

    def _check_quotas(self) -> str:
        """Describe the ledger of quotas, and configs without effect.

        Raises:
            MetadataUnavailableError: the ledger does not answer, and a quota is set, so nothing is sent or read.
        """
        try:
            workers = len(self._ledger().workers())
            said = f"the ledger answers, {count(workers, 'worker')}"
        except MetadataUnavailableError as error:
            if not quotas_in_force(self._stores().configs.snapshot()).set_no_limit:
                raise MetadataUnavailableError(
                    f"the quota ledger does not answer, so nothing is sent while a quota is set: {error}"
                ) from error
            said = f"no quota is set, so work goes on although the ledger does not answer: {error}"
        values = self._stores().configs.snapshot().values
        without_effect = topic_quota_configs(values, enabled=self._settings.topic_quotas.enable).without_effect
        return said if without_effect is None else f"{said}; {without_effect}"

    def _pool(self, pool: str, in_airflow: Collection[str] | None) -> str:
        """Check that Airflow has the pool, and slots for the batches of copies and deletions.

        Jobs that read hold nothing before they start, so Airflow lets their tasks wait for slots, without a time limit.
        """
        if in_airflow is not None and pool not in in_airflow:
            raise SendingStoppedError(pool_missing(pool))
        seen = self._stores().pool_mirror.seen().get(pool)
        if seen is not None and seen.slots < BATCH_SLOTS and pool == READER_POOL:
            return f"{pool} has {seen.slots} slots: its tasks wait in Airflow until it has some"
        if seen is not None and seen.slots < BATCH_SLOTS:
            raise SendingStoppedError(
                f"pool {pool} has {seen.slots} slots, which pauses its batches: give it slots to continue"
            )
        return f"{pool} has {'an unknown number of' if seen is None else seen.slots} slots"


_DELETES_WITHOUT: Final = {
    LOG_DIRS: "archived segments need no broker; bytes that are not copied yet count as 0, so less is deleted",
    CLUSTER_METADATA: "deletions are decided from what the platform has recorded itself",
    SUITES: "deletions evaluate no suite",
}
_READS_WITHOUT: Final = {
    CLUSTER_METADATA: "the platform counts, verifies and audits what it has recorded itself",
    PAUSE: "reading back sends nothing",
}
DOES_WITHOUT: Final[Mapping[str | None, Mapping[str, str]]] = MappingProxyType(
    {EXPIRATION_POOL: _DELETES_WITHOUT, READER_POOL: _READS_WITHOUT}
)
"""Checks that may fail for the work of a pool, each with what the failure means for that work."""
RESTORES_WITHOUT: Final = {LOG_DIRS: "remote storage alone is read"}
"""Further checks that may fail for work that reads nothing but remote storage, and what the failure means for it."""
NEVER_NEEDED: Final = {
    HANDOVERS: "other topics do not wait for the handover",
    LEASES: "no work waits for such a lease, and the next batch that takes the partition ends it",
}
