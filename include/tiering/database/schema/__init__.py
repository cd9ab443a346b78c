"""The one schema of the database. Every table is keyed by cluster id and, where it speaks of a topic, topic id."""

from include.tiering.database.schema.administration import (
    dynamic_config_changes,
    dynamic_configs,
    events,
    stores,
)
from include.tiering.database.schema.audit import audit_findings, audits, planned_removals, standing_guards
from include.tiering.database.schema.base import PARTITION_TOTAL, metadata
from include.tiering.database.schema.deletion import (
    approvals,
    plan_questions,
    planned_deletions,
    planned_expirations,
)
from include.tiering.database.schema.handover import (
    handover_checks,
    handover_guards,
    handover_partitions,
    handovers,
)
from include.tiering.database.schema.ingestion import (
    broker_epochs,
    ingested_records,
    metadata_positions,
    metadata_topics,
)
from include.tiering.database.schema.publication import publications, published_records
from include.tiering.database.schema.quota import quota_ledger, topic_meters
from include.tiering.database.schema.remote_log import (
    divergences,
    partitions,
    quality_results,
    segment_epochs,
    segments,
    size_counters,
    skipped_offsets,
    topics,
)
from include.tiering.database.schema.verification import planned_verifications
from include.tiering.database.schema.work import (
    batches,
    leases,
    pauses,
    planned_partitions,
    planned_segments,
    pools,
    runs,
)

__all__ = [
    "PARTITION_TOTAL",
    "approvals",
    "audit_findings",
    "audits",
    "batches",
    "broker_epochs",
    "divergences",
    "dynamic_config_changes",
    "dynamic_configs",
    "events",
    "handover_checks",
    "handover_guards",
    "handover_partitions",
    "handovers",
    "ingested_records",
    "leases",
    "metadata",
    "metadata_positions",
    "metadata_topics",
    "partitions",
    "pauses",
    "plan_questions",
    "planned_deletions",
    "planned_expirations",
    "planned_partitions",
    "planned_removals",
    "planned_segments",
    "planned_verifications",
    "pools",
    "publications",
    "published_records",
    "quality_results",
    "quota_ledger",
    "runs",
    "segment_epochs",
    "segments",
    "size_counters",
    "skipped_offsets",
    "standing_guards",
    "stores",
    "topic_meters",
    "topics",
]
