"""Settings of how work goes on, named in Kafka's style. The dynamic ones may be changed while jobs run."""

from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

from include.tiering.model.retention import ABANDONED_COPY_EXPIRY_MS, SUPERSEDED_HOLD_MS
from include.tiering.settings.fields import (
    KEEP,
    MOST_LONG,
    TOPIC_DELETION_VALUES,
    DynamicSection,
    Loosens,
    check_byte_bound,
    check_topic_deletion,
    days_of_expiry,
    operational,
)

_MOST_WINDOW: Final = 3_600
_DAY_MS: Final = 24 * 60 * 60 * 1000


class CopierSettings(DynamicSection):
    """Pace and size of copy batches."""

    prefix = "tiering.copier"

    batch_max_seconds: int = operational(
        600,
        "A copy batch claims no further segment after this time; the next run takes the rest.",
        unit="seconds",
        at_least=1,
    )
    max_batches: int = operational(
        16,
        "Most copy batches that one run of `tiering_copy` starts; each queue and Spark resource with work gets one at "
        "least. Their pool decides how many run at once.",
        unit="batches",
        at_least=1,
    )
    lease_ms: int = operational(
        30_000,
        "How long a batch owns a partition without renewing; a dead batch's partition is free after that.",
        unit="milliseconds",
        at_least=2_000,
        dynamic=False,
    )


class CopyFairnessSettings(DynamicSection):
    """What a batch does that has used its quota up."""

    prefix = "tiering.copy.fairness"

    enable: bool = operational(
        True,
        "A batch that meets an exhausted quota after at least one segment gives its partition back if another ready "
        "one has waited longer.",
    )


class QueueSettings(DynamicSection):
    """The queue in front of copy and read workers."""

    prefix = "queued"

    max_requests: int = operational(
        500, "Most requests that wait for a worker; whoever brings another one waits.", unit="requests", at_least=1
    )
    max_bytes: Annotated[int, AfterValidator(check_byte_bound)] = operational(
        -1,
        "Memory that waiting requests may hold before whoever brings another one waits, to which one largest request "
        "may come: a fetch weighs the bytes it asks for, a segment that a batch checks ahead its size. -1: no bound "
        "but `queued.max.requests`.",
        unit="bytes",
        at_least=-1,
        at_most=MOST_LONG,
        accepts=f"integer, 1 to {MOST_LONG}, or -1",
        aliases=("queued.max.request.bytes",),
    )


class ReaderSettings(DynamicSection):
    """Those who read remote records for others."""

    prefix = "remote.log.reader"

    threads: int = operational(
        10,
        "Threads that read remote records at once in a process that serves fetches, while the size of Airflow's pool "
        "`remote_log_reader` is not known or has no limit; else as many as it has slots.",
        unit="threads",
        at_least=1,
        dynamic=False,
    )


class CopyQuotaWindowSettings(DynamicSection):
    """The rolling window over which copied bytes are averaged (KIP-956)."""

    prefix = "remote.log.manager.copy.quota.window"

    num: int = operational(
        61,
        "Samples in the window over which the copy rate is measured.",
        unit="samples",
        at_least=1,
        at_most=_MOST_WINDOW,
    )
    size_seconds: int = operational(
        1, "Length of one sample of the copy rate.", unit="seconds", at_least=1, at_most=_MOST_WINDOW
    )


class FetchQuotaWindowSettings(DynamicSection):
    """The rolling window over which fetched bytes are averaged (KIP-956)."""

    prefix = "remote.log.manager.fetch.quota.window"

    num: int = operational(
        11,
        "Samples in the window over which the fetch rate is measured.",
        unit="samples",
        at_least=1,
        at_most=_MOST_WINDOW,
    )
    size_seconds: int = operational(
        1, "Length of one sample of the fetch rate.", unit="seconds", at_least=1, at_most=_MOST_WINDOW
    )


class ExpirationSettings(DynamicSection):
    """Pace of expiration, and when it asks a person first."""

    prefix = "tiering.expiration"

    max_share: float = operational(
        0.2,
        "Largest share of a topic's remote bytes that expiration deletes within 24 hours without an approval: what is "
        "planned and what was deleted lately, of what there would be without either.",
        unit="share",
        at_least=0,
        at_most=1,
        loosens=Loosens.UPWARDS,
    )
    min_bytes: int = operational(
        1_073_741_824,
        "Bytes of a topic that expiration deletes within 24 hours without an approval, whatever their share.",
        unit="bytes",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.UPWARDS,
    )
    total_max_bytes: int = operational(
        1_073_741_824,
        "Bytes that expiration deletes within 24 hours without an approval, in all, of topics that lose more than "
        "`tiering.expiration.max.share` and no more than `tiering.expiration.min.bytes` each.",
        unit="bytes",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.UPWARDS,
    )
    max_whole_topics: int = operational(
        1,
        "So many topics may lose everything within 24 hours without an approval, however little that is.",
        unit="topics",
        at_least=0,
        at_most=1_000_000,
        loosens=Loosens.UPWARDS,
    )
    batch_max_seconds: int = operational(
        600,
        "A batch of expiration begins no further group of segments after this time; the next run takes the rest.",
        unit="seconds",
        at_least=1,
    )
    max_batches: int = operational(
        4,
        "Most batches that one run of `tiering_expiration` starts; their pool decides how many run at once.",
        unit="batches",
        at_least=1,
    )


class ClockSettings(DynamicSection):
    """When the database's clock is believed, before anything is deleted by it."""

    prefix = "tiering.clock"

    max_difference_ms: int = operational(
        300_000,
        "So far the database's clock may be from the worker's and from the remote store's; farther apart, expiration "
        "deletes nothing.",
        unit="milliseconds",
        at_least=5_000,
        at_most=MOST_LONG,
        loosens=Loosens.UPWARDS,
    )
    ignored_until_ms: int = operational(
        0,
        "Events that are dated up to this time (UTC, since 1970) may lie in the future: the database's clock was ahead "
        "when it dated them. For after such a time; 0: none.",
        unit="milliseconds",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.UPWARDS,
    )


class AbandonedCopySettings(DynamicSection):
    """When an abandoned copy expires. `copying.abandoned_copies` says which rule applies when."""

    prefix = "tiering.abandoned.copy"

    expiry_ms: int = operational(
        ABANDONED_COPY_EXPIRY_MS,
        "An abandoned copy, one that was begun and not finished and that nobody works on, is deleted by expiration "
        "after this time, once another copy of its offsets has passed verification.",
        unit="milliseconds",
        at_least=60_000,
        at_most=MOST_LONG,
        aliases=("tiering.unfinished.copy.expiry.ms",),
        loosens=Loosens.DOWNWARDS,
    )


class SupersededSettings(DynamicSection):
    """What happens to a segment that failed the quality gate and was copied again, and how often one is."""

    prefix = "tiering.superseded"

    hold_ms: int = operational(
        SUPERSEDED_HOLD_MS,
        "Objects of a failed segment are kept this long after a new copy took its place, as evidence; then expiration "
        "deletes them.",
        unit="milliseconds",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.DOWNWARDS,
    )
    max_copies: int = operational(
        1,
        "So many new copies of a failed segment may fail as well within a week; then its partition waits for a person, "
        "or for the week to end.",
        unit="copies",
        at_least=0,
        at_most=100,
    )


class OnTopicSettings(DynamicSection):
    """What follows here from what happens to a topic in the cluster."""

    prefix = "tiering.on.topic"

    delete: Annotated[str, BeforeValidator(check_topic_deletion)] = operational(
        KEEP,
        "What becomes of the remote segments of a topic that was deleted: they stay and are served by its topic id, or "
        "they all expire so many days after the deletion was first seen, each time with an approval.",
        accepts=TOPIC_DELETION_VALUES,
        loosens=Loosens.DOWNWARDS,
    )

    @property
    def expire_after_days(self) -> int | None:
        """None: keep."""
        return days_of_expiry(self.delete)


class TombstoneSettings(DynamicSection):
    """How long metadata keeps a segment that was deleted."""

    prefix = "tiering.tombstone"

    ms: int = operational(
        90 * _DAY_MS,
        "Metadata of a deleted segment is kept this long, hidden from all queries, then its row goes. It says what an "
        "object was that turns up later.",
        unit="milliseconds",
        at_least=2 * _DAY_MS,
        at_most=MOST_LONG,
        loosens=Loosens.DOWNWARDS,
    )


class TopicQuotasSettings(DynamicSection):
    """Admission of segments by the bytes-in rate of their topic."""

    prefix = "tiering.topic.quotas"

    enable: bool = operational(
        False,
        "Refuse a segment while both the total and its topic take in more than their bytes-in thresholds.",
    )
