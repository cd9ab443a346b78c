"""Operational settings, named in Kafka's style."""

from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

from include.tiering.model.retention import ABANDONED_COPY_EXPIRY_MS, SUPERSEDED_HOLD_MS
from include.tiering.settings.fields import (
    KEEP,
    MOST_LONG,
    MOST_MAPPED,
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
        "A copy batch that has run for this time begins no further segment; other batches take the rest.",
        unit="seconds",
        at_least=1,
    )
    max_batches: int = operational(
        16,
        "Most copy batches that a run of `tiering_copy` starts; each queue and Spark resource with work gets at least "
        "1, even beyond this number. Their pool limits how many run at once.",
        unit="batches",
        at_least=1,
        at_most=MOST_MAPPED,
        lower_stored=True,
    )
    max_transfers: int = operational(
        16,
        "Most segments that a copy batch sends at the same time. It sends fewer if this machine or a quota limits it, "
        "or if the store asks it to slow down. Segments that wait for the quota of their topic or broker, or for the "
        "segment before them, do not count; with these a batch has at most three times this number in flight. A batch "
        "that runs obeys a change within a second.",
        unit="transfers",
        at_least=1,
        at_most=16,
    )
    total_max_transfers: int = operational(
        256,
        "Most segments that all batches together send at the same time: each batch sends at most this number, divided "
        "by the number of batches that run, but at least one. A batch that runs obeys a change within a second.",
        unit="transfers",
        at_least=1,
    )
    lease_ms: int = operational(
        30_000,
        "How long a batch's lease of a partition lasts without renewal; then another batch can claim the partition.",
        unit="milliseconds",
        at_least=2_000,
        dynamic=False,
    )


class CopyFairnessSettings(DynamicSection):
    """What a copy batch does while the copy quota is exhausted."""

    prefix = "tiering.copy.fairness"

    enable: bool = operational(
        True,
        "After a segment, a batch that has waited for the copy quota for 50 ms in all under its lease gives its "
        "partition back if another partition that it can claim has waited since before that lease began.",
    )


class QueueSettings(DynamicSection):
    """The queue in front of copy and read workers."""

    prefix = "queued"

    max_requests: int = operational(
        500, "Most requests that wait for a worker; a further request blocks its sender.", unit="requests", at_least=1
    )
    max_bytes: Annotated[int, AfterValidator(check_byte_bound)] = operational(
        -1,
        "A further request blocks its sender while waiting and served requests hold at least this many bytes together; "
        "so the last request may exceed the number. A fetch that waits counts with the bytes that it requests, and one "
        "that is read with the memory that it needs, which is more if the first batch is larger; a segment that a "
        "batch copies counts with its size. Each process counts on its own. -1: only `queued.max.requests` applies.",
        unit="bytes",
        at_least=-1,
        at_most=MOST_LONG,
        accepts=f"integer, 1 to {MOST_LONG}, or -1",
        aliases=("queued.max.request.bytes",),
    )


class ReaderSettings(DynamicSection):
    """Processes that read remote records for clients."""

    prefix = "remote.log.reader"

    threads: int = operational(
        10,
        "Threads that read remote records in a process that serves fetches, if the size of Airflow's pool "
        "`remote_log_reader` is not known, unlimited, or 0. Otherwise there are as many threads as the pool has slots.",
        unit="threads",
        at_least=1,
        dynamic=False,
    )


class ReadSettings(DynamicSection):
    """Processes that read whole segments back: those that verify segments, and those that fetch a partition."""

    prefix = "tiering.read"

    max_segments: int = operational(
        16,
        "Most segments that a process reads at the same time, each with one connection to the store and about 4 MiB "
        "of memory. While it reads only one or two, a log of more than 16 MiB is read in ranges, with up to four "
        "connections and 64 MiB of memory in all. A Spark job of a verification has a process for each core.",
        unit="segments",
        at_least=1,
        at_most=32,
    )


class CopyQuotaWindowSettings(DynamicSection):
    """The rolling window over which copied bytes are averaged (KIP-956)."""

    prefix = "remote.log.manager.copy.quota.window"

    num: int = operational(
        61,
        "Samples in the window. It decides only over how many whole minutes the metric of the copy rate is measured: "
        "the limiter of copies uses no window.",
        unit="samples",
        at_least=1,
        at_most=_MOST_WINDOW,
        dynamic=False,
    )
    size_seconds: int = operational(
        1,
        "Length of one sample of the copy rate.",
        unit="seconds",
        at_least=1,
        at_most=_MOST_WINDOW,
        dynamic=False,
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
        dynamic=False,
    )
    size_seconds: int = operational(
        1,
        "Length of one sample of the fetch rate.",
        unit="seconds",
        at_least=1,
        at_most=_MOST_WINDOW,
        dynamic=False,
    )


class ExpirationSettings(DynamicSection):
    """Pace of expiration, and its deletion limits."""

    prefix = "tiering.expiration"

    max_share: float = operational(
        0.2,
        "Largest share of a topic's remote bytes that expiration deletes within 24 hours without an approval, unless "
        "the bytes are at most `tiering.expiration.min.bytes`. The share is planned and deleted bytes of that time, "
        "divided by what would be stored without these deletions.",
        unit="share",
        at_least=0,
        at_most=1,
        loosens=Loosens.UPWARDS,
    )
    min_bytes: int = operational(
        1_073_741_824,
        "Bytes of a topic that expiration deletes within 24 hours without an approval, whatever their share, as far as "
        "`tiering.expiration.total.max.bytes` allows.",
        unit="bytes",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.UPWARDS,
    )
    total_max_bytes: int = operational(
        1_073_741_824,
        "Bytes that expiration deletes within 24 hours without an approval, summed over the topics that each lose more "
        "than `tiering.expiration.max.share` and at most `tiering.expiration.min.bytes`.",
        unit="bytes",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.UPWARDS,
    )
    max_whole_topics: int = operational(
        1,
        "Most topics that may lose everything within 24 hours without an approval, however few bytes they have.",
        unit="topics",
        at_least=0,
        at_most=1_000_000,
        loosens=Loosens.UPWARDS,
    )
    batch_max_seconds: int = operational(
        600,
        "A batch of expiration or orphan removal that has run for this time begins no further group; others take the "
        "rest.",
        unit="seconds",
        at_least=1,
    )
    max_batches: int = operational(
        4,
        "Most batches that one run of `tiering_expiration` starts; their pool decides how many run at once.",
        unit="batches",
        at_least=1,
        at_most=MOST_MAPPED,
        lower_stored=True,
    )


class ClockSettings(DynamicSection):
    """How far the database's clock may differ from other clocks before nothing is deleted."""

    prefix = "tiering.clock"

    max_difference_ms: int = operational(
        300_000,
        "Largest difference between the database's clock and the clocks of the worker and the remote store. If one "
        "differs by over a second more, expirations and removals of orphans delete nothing.",
        unit="milliseconds",
        at_least=5_000,
        at_most=MOST_LONG,
        loosens=Loosens.UPWARDS,
    )
    ignored_until_ms: int = operational(
        0,
        "Events that are dated up to this time (UTC, since 1970, inclusive) may be in the future: the database's clock "
        "was ahead when they were dated. After an error about such events, set it to the time that they have. 0: no "
        "event may be in the future.",
        unit="milliseconds since 1970",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.UPWARDS,
    )


class AbandonedCopySettings(DynamicSection):
    """When an abandoned copy expires. `copying.finish_abandoned` says which rule applies when."""

    prefix = "tiering.abandoned.copy"

    expiry_ms: int = operational(
        ABANDONED_COPY_EXPIRY_MS,
        "How long expiration keeps an abandoned copy after its last event, unless retention deletes it earlier. Such a "
        "copy was begun and not finished, and has no live lease. After this time expiration deletes it if it is below "
        "the log start, if the store has no object of it, or if passed segments and decisions to skip cover all of its "
        "offsets.",
        unit="milliseconds",
        at_least=60_000,
        at_most=MOST_LONG,
        aliases=("tiering.unfinished.copy.expiry.ms",),
        loosens=Loosens.DOWNWARDS,
    )


class SupersededSettings(DynamicSection):
    """How long a replaced failed segment is kept, and how often offsets are copied again."""

    prefix = "tiering.superseded"

    hold_ms: int = operational(
        SUPERSEDED_HOLD_MS,
        "Least time for which the objects of a failed segment are kept after a new copy replaced it; then expiration "
        "may delete them.",
        unit="milliseconds",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.DOWNWARDS,
    )
    max_copies: int = operational(
        1,
        "Most new copies of a failed segment's offsets within a week. If they fail too, the partition waits until a "
        "person decides or the week has passed.",
        unit="copies",
        at_least=0,
        at_most=100,
    )


class OnTopicSettings(DynamicSection):
    """What the platform does when a topic is deleted in the cluster."""

    prefix = "tiering.on.topic"

    delete: Annotated[str, BeforeValidator(check_topic_deletion)] = operational(
        KEEP,
        "What happens to the remote segments of a deleted topic. `keep`: they stay and are served by the topic id. "
        "`expire:Nd`: they all expire N days after the deletion was first detected; each such run needs an approval.",
        accepts=TOPIC_DELETION_VALUES,
        loosens=Loosens.DOWNWARDS,
    )

    @property
    def expire_after_days(self) -> int | None:
        """Days until the segments of a deleted topic expire; None keeps them."""
        return days_of_expiry(self.delete)


class TombstoneSettings(DynamicSection):
    """How long the metadata of a deleted segment is kept."""

    prefix = "tiering.tombstone"

    ms: int = operational(
        90 * _DAY_MS,
        "How long the metadata of a deleted segment is kept, as a tombstone that is not served. It identifies objects "
        "of the segment that are found later. After this time, expirations delete it unless it is still needed.",
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
        "Refuse a segment while both its broker's total and its topic exceed their bytes-in thresholds.",
    )
