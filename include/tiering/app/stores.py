"""The SQL stores of one cluster in one database."""

from functools import cached_property

from sqlalchemy import Engine

from include.tiering.audit.finding import AuditedMetadata
from include.tiering.audit.plan_removals import RemovalStore
from include.tiering.audit.record import AuditStore
from include.tiering.audit.sql_removals import SqlRemovalStore
from include.tiering.audit.store import SqlAuditedMetadata, SqlAuditStore
from include.tiering.configs.config_store import ConfigStore
from include.tiering.configs.pools import PoolMirror
from include.tiering.configs.sql_configs import SqlConfigStore, SqlPoolMirror
from include.tiering.database.store_identity import SeenClusterMetadata, StoreIdentities
from include.tiering.expiration.store import SqlDeletionStore
from include.tiering.handover.contract import HandoverStore
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.metadata_sync.publication_contract import PublicationStore
from include.tiering.metadata_sync.sql_ingestion import SqlMetadataIngestion
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.recovery.contract import SegmentAdoption
from include.tiering.recovery.sql_recovery import SqlMetadataRecovery
from include.tiering.remote_storage.claim_store import StoreGenerations
from include.tiering.runs.approval import PlanQuestions
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.deletion_run import DeletionStore
from include.tiering.runs.store import SqlPlanQuestions, SqlWorkStore
from include.tiering.segments.contract import RemoteLogMetadata, RemoteLogSizes, TopicRegistry
from include.tiering.segments.failed_copies import FailedCopies
from include.tiering.segments.ingestion_contract import MetadataIngestion
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_failed_copies import SqlFailedCopies
from include.tiering.segments.sql_topics import SqlTopicDeletions, SqlTopicRegistry
from include.tiering.segments.topics import TopicDeletions
from include.tiering.sizes.store import SqlRemoteLogSizes
from include.tiering.verification.plan import VerificationStore
from include.tiering.verification.sql_verifications import SqlVerificationStore


class Stores:
    """Each store is made when it is first used. Making one does not touch the database."""

    def __init__(self, engine: Engine, cluster_id: str) -> None:
        self.engine = engine
        self.cluster_id = cluster_id

    @cached_property
    def metadata(self) -> RemoteLogMetadata:
        return SqlRemoteLogMetadata(self.engine, self.cluster_id)

    @cached_property
    def failed_copies(self) -> FailedCopies:
        return SqlFailedCopies(self.engine, self.cluster_id)

    @cached_property
    def registry(self) -> TopicRegistry:
        return SqlTopicRegistry(self.engine, self.cluster_id)

    @cached_property
    def topic_deletions(self) -> TopicDeletions:
        return SqlTopicDeletions(self.engine, self.cluster_id)

    @cached_property
    def seen_cluster_metadata(self) -> SeenClusterMetadata:
        return SeenClusterMetadata(self.engine, self.cluster_id)

    @cached_property
    def generations(self) -> StoreGenerations:
        return StoreIdentities(self.engine, self.cluster_id)

    @cached_property
    def configs(self) -> ConfigStore:
        return SqlConfigStore(self.engine, self.cluster_id)

    @cached_property
    def pool_mirror(self) -> PoolMirror:
        return SqlPoolMirror(self.engine, self.cluster_id)

    @cached_property
    def work(self) -> WorkStore:
        return SqlWorkStore(self.engine, self.cluster_id)

    @cached_property
    def plan_questions(self) -> PlanQuestions:
        """What people were asked about plans of any kind, and their answers."""
        return SqlPlanQuestions(self.engine, self.cluster_id)

    @cached_property
    def deletions(self) -> DeletionStore:
        return SqlDeletionStore(self.engine, self.cluster_id)

    @cached_property
    def verifications(self) -> VerificationStore:
        return SqlVerificationStore(self.engine, self.cluster_id)

    @cached_property
    def audits(self) -> AuditStore:
        return SqlAuditStore(self.engine, self.cluster_id)

    @cached_property
    def removals(self) -> RemovalStore:
        return SqlRemovalStore(self.engine, self.cluster_id)

    @cached_property
    def audited_metadata(self) -> AuditedMetadata:
        return SqlAuditedMetadata(self.engine, self.cluster_id)

    @cached_property
    def remote_log_sizes(self) -> RemoteLogSizes:
        return SqlRemoteLogSizes(self.engine, self.cluster_id)

    @cached_property
    def ingestion(self) -> MetadataIngestion:
        return SqlMetadataIngestion(self.engine, self.cluster_id)

    @cached_property
    def publications(self) -> PublicationStore:
        return SqlPublicationStore(self.engine, self.cluster_id)

    @cached_property
    def handovers(self) -> HandoverStore:
        return SqlHandoverStore(self.engine, self.cluster_id)

    @cached_property
    def recovery(self) -> SegmentAdoption:
        return SqlMetadataRecovery(self.engine, self.cluster_id)
