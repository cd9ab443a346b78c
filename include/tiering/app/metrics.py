"""All metrics, in the order of docs/metrics.md.

A metric with the meaning of a Kafka metric has Kafka's name, with underscores in place of dashes, which Prometheus does
not allow (`byte-rate` has Kafka's type RLMCopy or RLMFetch in front); the others start with `tiering_`.
"""

from typing import Final

from include.tiering.audit.metrics import AUDIT_METRICS
from include.tiering.copying.metrics import COPY_METRICS
from include.tiering.expiration.metrics import EXPIRATION_METRICS
from include.tiering.handover.metrics import HANDOVER_METRICS
from include.tiering.metadata_sync.metrics import INGEST_METRICS, PUBLICATION_METRICS
from include.tiering.quotas.metrics import DELETE_RATE_METRICS, QUOTA_METRICS, TOPIC_QUOTA_METRICS
from include.tiering.recovery.metrics import DRILL_METRICS
from include.tiering.restoring.metrics import RESTORE_METRICS
from include.tiering.segments.failed_copies import FAILED_COPY_METRICS
from include.tiering.sizes.metrics import SIZE_METRICS
from include.tiering.telemetry.metrics import LAST_RUN
from include.tiering.verification.metrics import VERDICT_METRICS

METRICS: Final = (
    *COPY_METRICS,
    *SIZE_METRICS,
    *VERDICT_METRICS,
    *FAILED_COPY_METRICS,
    *AUDIT_METRICS,
    *INGEST_METRICS,
    *PUBLICATION_METRICS,
    *HANDOVER_METRICS,
    *TOPIC_QUOTA_METRICS,
    *QUOTA_METRICS,
    *EXPIRATION_METRICS,
    *RESTORE_METRICS,
    *DRILL_METRICS,
    *DELETE_RATE_METRICS,
    LAST_RUN,
)
