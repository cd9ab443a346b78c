"""What is looked at before a run starts: schema, store, log directories, brokers, pauses, pools."""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from sqlalchemy import Engine

from include.tiering.configs.pools import BATCH_SLOTS, PoolMirror
from include.tiering.database.migrations import HEAD, require_head
from include.tiering.errors import (
    ClusterFactsError,
    HandoverForgottenError,
    SendingStoppedError,
    SettingError,
    SourceError,
)
from include.tiering.handover.contract import HandoverStore, forgotten_handovers
from include.tiering.kafka.cluster.contract import ClusterFacts
from include.tiering.kafka.log_dirs.dirs import DirIdentity, identify, require_agreement
from include.tiering.remote_storage.claim_store import SETTLE_SECONDS, StoreGenerations
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.store_ownership import GuardedStorage
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs, named_log_dirs
from include.tiering.runs.contract import ALL_TOPICS, WorkStore, require_none_ahead
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.failed_copies import FailedCopies
from include.tiering.segments.ingestion_contract import MetadataIngestion
from include.tiering.segments.topics import TopicDeletions
from include.tiering.settings import TieringSettings

LOG_DIRS: Final = "log dirs"
TOPIC_FACTS: Final = "topic facts"
PAUSE: Final = "pause"
HANDOVERS: Final = "hand-overs"
LEASES: Final = "leases"


class ClusterStores(Protocol):
    """The stores that readiness is asked of. They are there once the database serves a cluster: until then asking for
    them raises MetadataUnavailableError, which is what a check has to say."""

    @property
    def metadata(self) -> RemoteLogMetadata: ...
    @property
    def registry(self) -> TopicRegistry: ...
    @property
    def failed_copies(self) -> FailedCopies: ...
    @property
    def topic_deletions(self) -> TopicDeletions: ...
    @property
    def ingestion(self) -> MetadataIngestion: ...
    @property
    def work(self) -> WorkStore: ...
    @property
    def handovers(self) -> HandoverStore: ...
    @property
    def pool_mirror(self) -> PoolMirror: ...
    @property
    def generations(self) -> StoreGenerations: ...


class DeploymentChecks:
    """Each check opens what it looks at, so that it can say what cannot be opened."""

    def __init__(
        self,
        *,
        settings: TieringSettings,
        engine: Callable[[], Engine],
        cluster_id: Callable[[], str],
        stores: Callable[[], ClusterStores],
        storage: Callable[[], GuardedStorage],
        unguarded: Callable[[], RemoteStorage],
        facts: Callable[[], ClusterFacts],
        log_dirs: ClusterLogDirs,
        has_brokers: bool,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._cluster_id = cluster_id
        self._stores = stores
        self._storage = storage
        self._unguarded = unguarded
        self._facts = facts
        self._log_dirs = log_dirs
        self._has_brokers = has_brokers

    def probes(self, pool: str | None, *, needs_log_dirs: bool = True) -> dict[str, Callable[[], str]]:
        """What `run_checks` runs: each answers what it found or raises a TieringError.

        `needs_log_dirs`: settings without any are wrong. Else the brokers may be gone for good.
        """
        probes: dict[str, Callable[[], str]] = {
            "schema": self._schema,
            "storage": self._check_storage,
            LOG_DIRS: lambda: self._check_log_dirs() if needs_log_dirs or self._settings.log_dirs else "none is set",
            TOPIC_FACTS: self._topic_facts,
            PAUSE: self._pause,
            HANDOVERS: self._check_handovers,
            LEASES: lambda: require_none_ahead(self._stores().work.leases_ahead()),
        }
        if pool is not None:
            probes["pool"] = partial(self._pool, pool)
        return probes

    def _schema(self) -> str:
        require_head(self._engine())
        return f"at {HEAD}, cluster {self._cluster_id()}"

    def _check_storage(self) -> str:
        self._storage().check_writable()
        heeded = self._unguarded().replaces_conditionally()
        self._stores().generations.remember_conditional_writes(heeded)
        url = self._settings.remote_storage.required_url()
        if heeded:
            return f"{url} is writable and ours"
        return (
            f"{url} is writable and ours; this server takes no notice of If-Match on PUT, so a copy of the database"
            f" that plans within {SETTLE_SECONDS:.0f} seconds of this one may not be refused at once: use a server that"
            " heeds it"
        )

    def _check_log_dirs(self) -> str:
        """One that cannot be read holds up its own partitions, all of them hold up the run."""
        unreadable: list[SourceError] = []
        seen: list[DirIdentity] = []
        for log_dir in named_log_dirs(self._settings):
            try:
                identity = identify(log_dir)
                require_agreement(identity, seen, identity.cluster_id)
            except SourceError as error:
                unreadable.append(error)
                continue
            except ClusterFactsError as error:
                # What the settings say of a directory: waiting does not change it.
                raise SettingError(f"{error}: correct log_dirs") from error
            seen.append(identity)
            if identity.cluster_id != self._cluster_id():
                raise SettingError(
                    f"{identity.path} belongs to cluster {identity.cluster_id}, not {self._cluster_id()}"
                )
        total = len(named_log_dirs(self._settings))
        if not unreadable:
            return f"{total} readable"
        if len(unreadable) == total:
            raise unreadable[0]
        waiting = "; ".join(map(str, unreadable))
        return f"{total - len(unreadable)} of {total} readable; partitions of the others wait: {waiting}"

    def _topic_facts(self) -> str:
        self._log_dirs.require_cluster()
        self._facts().refresh()
        if self._has_brokers:
            return "the brokers tell them, and exact offsets"
        return "known" if self._facts().cluster_id() is not None else "none: a topic is copied if it is named exactly"

    def _pause(self) -> str:
        paused = self._stores().work.paused_topics()
        if ALL_TOPICS in paused:
            raise SendingStoppedError("all topics are paused: ./tiering resume")
        return f"paused topics: {', '.join(sorted(paused))}" if paused else "nothing is paused"

    def _check_handovers(self) -> str:
        """One that nobody carries on holds up nothing else, but its topic's retention."""
        store = self._stores().handovers
        under_way = store.open_handovers()
        if forgotten := forgotten_handovers(under_way, store.now_ms()):
            raise HandoverForgottenError("; ".join(one.message for one in forgotten))
        return ", ".join(f"{one.topic} is at {one.step}" for one in under_way) or "none is on its way"

    def _pool(self, pool: str) -> str:
        seen = self._stores().pool_mirror.seen().get(pool)
        if seen is not None and seen.slots < BATCH_SLOTS:
            raise SendingStoppedError(f"pool {pool} has {seen.slots} slots: that is a pause; give it slots to go on")
        return f"{pool} has {'an unknown number of' if seen is None else seen.slots} slots"
