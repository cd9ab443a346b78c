"""The SQL stores of one cluster. The module of a store is imported when the store is first used."""

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from include.tiering.audit.finding import AuditedMetadata
    from include.tiering.audit.plan_removals import RemovalStore
    from include.tiering.audit.record import AuditStore
    from include.tiering.configs.config_store import ConfigStore
    from include.tiering.configs.pools import PoolMirror
    from include.tiering.database.event_log import EventLog
    from include.tiering.database.store_identity import SeenClusterMetadata
    from include.tiering.handover.contract import HandoverStore
    from include.tiering.kafka.fetch_api.contract import RangeStore
    from include.tiering.metadata_sync.publication_contract import PublicationStore
    from include.tiering.recovery.contract import SegmentAdoption
    from include.tiering.remote_storage.claim_store import StoreGenerations
    from include.tiering.runs.approval import PlanQuestions
    from include.tiering.runs.contract import WorkStore
    from include.tiering.runs.deletion_run import DeletionStore
    from include.tiering.runs.sql_queue_scans import SqlQueueScans
    from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
    from include.tiering.segments.failed_copies import FailedCopies
    from include.tiering.segments.ingestion_contract import MetadataIngestion
    from include.tiering.segments.sizes_contract import RemoteLogSizes
    from include.tiering.segments.topics import TopicDeletions
    from include.tiering.verification.plan import VerificationStore


class Stores:
    """The SQL stores of one cluster in one database. Constructing a store does not connect to the database."""

    def __init__(self, engine: "Engine", cluster_id: str) -> None:
        self.engine = engine
        self.cluster_id = cluster_id

    def now_ms(self) -> int:
        """Return the database's time in UTC milliseconds. Raises MetadataUnavailableError."""
        from include.tiering.database.transactions import DatedStore

        return DatedStore(self.engine, self.cluster_id).now_ms()

    @cached_property
    def metadata(self) -> "RemoteLogMetadata":
        from include.tiering.segments.sql import SqlRemoteLogMetadata

        return SqlRemoteLogMetadata(self.engine, self.cluster_id)

    @cached_property
    def fetched_ranges(self) -> "RangeStore":
        """The ranges into which leaders' logs were cut."""
        from include.tiering.segments.sql_fetched_ranges import SqlFetchedRanges

        return SqlFetchedRanges(self.engine, self.cluster_id)

    @cached_property
    def failed_copies(self) -> "FailedCopies":
        from include.tiering.segments.sql_failed_copies import SqlFailedCopies

        return SqlFailedCopies(self.engine, self.cluster_id)

    @cached_property
    def registry(self) -> "TopicRegistry":
        from include.tiering.segments.sql_topics import SqlTopicRegistry

        return SqlTopicRegistry(self.engine, self.cluster_id)

    @cached_property
    def topic_deletions(self) -> "TopicDeletions":
        from include.tiering.segments.sql_topics import SqlTopicDeletions

        return SqlTopicDeletions(self.engine, self.cluster_id)

    @cached_property
    def seen_cluster_metadata(self) -> "SeenClusterMetadata":
        from include.tiering.database.store_identity import SeenClusterMetadata

        return SeenClusterMetadata(self.engine, self.cluster_id)

    @cached_property
    def generations(self) -> "StoreGenerations":
        from include.tiering.database.store_identity import StoreIdentities

        return StoreIdentities(self.engine, self.cluster_id)

    @cached_property
    def configs(self) -> "ConfigStore":
        from include.tiering.configs.sql_configs import SqlConfigStore

        return SqlConfigStore(self.engine, self.cluster_id)

    @cached_property
    def pool_mirror(self) -> "PoolMirror":
        from include.tiering.configs.sql_configs import SqlPoolMirror

        return SqlPoolMirror(self.engine, self.cluster_id)

    @cached_property
    def work(self) -> "WorkStore":
        from include.tiering.runs.store import SqlWorkStore

        return SqlWorkStore(self.engine, self.cluster_id)

    @cached_property
    def queue_scans(self) -> "SqlQueueScans":
        from include.tiering.runs.sql_queue_scans import SqlQueueScans

        return SqlQueueScans(self.engine, self.cluster_id)

    @cached_property
    def events(self) -> "EventLog":
        from include.tiering.database.event_log import EventLog

        return EventLog(self.engine, self.cluster_id)

    @cached_property
    def plan_questions(self) -> "PlanQuestions":
        """Questions to people about plans of any kind, and their answers."""
        from include.tiering.runs.sql_approval import SqlPlanQuestions

        return SqlPlanQuestions(self.engine, self.cluster_id)

    @cached_property
    def deletions(self) -> "DeletionStore":
        from include.tiering.expiration.store import SqlDeletionStore

        return SqlDeletionStore(self.engine, self.cluster_id)

    @cached_property
    def verifications(self) -> "VerificationStore":
        from include.tiering.verification.sql_verifications import SqlVerificationStore

        return SqlVerificationStore(self.engine, self.cluster_id)

    @cached_property
    def audits(self) -> "AuditStore":
        from include.tiering.audit.store import SqlAuditStore

        return SqlAuditStore(self.engine, self.cluster_id)

    @cached_property
    def removals(self) -> "RemovalStore":
        from include.tiering.audit.sql_removals import SqlRemovalStore

        return SqlRemovalStore(self.engine, self.cluster_id)

    @cached_property
    def audited_metadata(self) -> "AuditedMetadata":
        from include.tiering.audit.store import SqlAuditedMetadata

        return SqlAuditedMetadata(self.engine, self.cluster_id)

    @cached_property
    def remote_log_sizes(self) -> "RemoteLogSizes":
        from include.tiering.sizes.store import SqlRemoteLogSizes

        return SqlRemoteLogSizes(self.engine, self.cluster_id)

    @cached_property
    def ingestion(self) -> "MetadataIngestion":
        from include.tiering.metadata_sync.sql_ingestion import SqlMetadataIngestion

        return SqlMetadataIngestion(self.engine, self.cluster_id)

    @cached_property
    def publications(self) -> "PublicationStore":
        from include.tiering.metadata_sync.sql_publication import SqlPublicationStore

        return SqlPublicationStore(self.engine, self.cluster_id)

    @cached_property
    def handovers(self) -> "HandoverStore":
        from include.tiering.handover.store import SqlHandoverStore

        return SqlHandoverStore(self.engine, self.cluster_id)

    @cached_property
    def recovery(self) -> "SegmentAdoption":
        from include.tiering.recovery.sql_recovery import SqlMetadataRecovery

        return SqlMetadataRecovery(self.engine, self.cluster_id)
