"""Publish several partitions one after another: what stops one does not stop the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from include.tiering.errors import SendingStoppedError, TieringError
from include.tiering.metadata_sync.plan_publication import PublicationPlan
from include.tiering.metadata_sync.publish import Publisher
from include.tiering.model.ids import TopicIdPartition

PartitionProgress = Callable[[TopicIdPartition, int, int], None]
"""Records sent about a partition, of records that its plan has."""


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """What became of one partition.

    Attributes:
        log_start_offset: the broker's.
        plan: what was to be sent; None where `error` came before there was a plan.
        records: so many were sent and read back.
        error: class name of what stopped it, None if nothing did; `message` says more.
        retriable: another try may succeed.
    """

    topic_id_partition: TopicIdPartition
    log_start_offset: int
    plan: PublicationPlan | None
    records: int = 0
    error: str | None = None
    message: str | None = None
    retriable: bool = False


def plan_partitions(publisher: Publisher, log_starts: Mapping[TopicIdPartition, int]) -> tuple[PublishedPartition, ...]:
    """What would be sent about each, by what was read back so far. Asks no broker and changes nothing."""
    return tuple(
        PublishedPartition(partition, offset, publisher.plan(partition, log_start_offset=offset))
        for partition, offset in log_starts.items()
    )


def publish_partitions(
    publisher: Publisher,
    log_starts: Mapping[TopicIdPartition, int],
    *,
    run_id: str,
    batch_id: str,
    on_progress: PartitionProgress,
) -> tuple[PublishedPartition, ...]:
    """Publish each, and read back all that was ever published of it. `log_starts` are the brokers'.

    Raises:
        SendingStoppedError: paused.
    """
    return tuple(
        _publish_one(publisher, partition, offset, run_id, batch_id, on_progress)
        for partition, offset in log_starts.items()
    )


def _publish_one(
    publisher: Publisher,
    partition: TopicIdPartition,
    log_start_offset: int,
    run_id: str,
    batch_id: str,
    on_progress: PartitionProgress,
) -> PublishedPartition:
    sent = 0

    def count(done: int, of: int) -> None:
        nonlocal sent
        sent = done
        on_progress(partition, done, of)

    try:
        published = publisher.publish(
            partition, log_start_offset=log_start_offset, run_id=run_id, batch_id=batch_id, on_progress=count
        )
        publisher.confirm(partition)
    except SendingStoppedError:
        raise
    except TieringError as error:
        return PublishedPartition(
            partition, log_start_offset, None, sent, type(error).__name__, str(error), error.retriable
        )
    return PublishedPartition(partition, log_start_offset, published.plan, sent)
