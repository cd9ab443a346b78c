"""Open transactions of a partition: its leader knows which producers have one, coordinators whose and since when."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from include.tiering.errors import BrokersError, BrokersRefusedError
from include.tiering.kafka.cluster.brokers_contract import OpenTransaction
from include.tiering.kafka.protocol.cluster_connections import ClusterConnections
from include.tiering.kafka.protocol.error_codes import refusal
from include.tiering.kafka.protocol.transaction_requests import (
    DescribedTransaction,
    DescribeProducers,
    DescribeTransactions,
    ListTransactions,
)
from include.tiering.model.ids import TopicIdPartition

_LOG = logging.getLogger(__name__)


def open_transactions(
    connections: ClusterConnections, partition: TopicIdPartition, leader: int, brokers: Sequence[int]
) -> list[OpenTransaction]:
    """Lowest start offset first.

    Raises:
        BrokersError: the leader does not say which producers there are. What coordinators do not say is left out.
    """
    what = f"producers of {partition} from broker {leader}"
    answers = connections.ask(leader, DescribeProducers(partition.topic, partition.partition))
    if not answers:
        raise BrokersRefusedError(f"{what}: the answer is empty")
    if answers[0].error:
        raise refusal(answers[0].error, what, answers[0].message)
    found = [
        OpenTransaction(one.producer_id, one.producer_epoch, one.transaction_start_offset, one.last_timestamp_ms)
        for one in answers[0].producers
        if one.transaction_start_offset >= 0
    ]
    if not found:
        return []
    known = _by_producer(connections, [one.producer_id for one in found], brokers)
    return sorted((_described(one, known.get(one.producer_id)) for one in found), key=lambda one: one.start_offset)


def _by_producer(
    connections: ClusterConnections, producer_ids: Sequence[int], brokers: Sequence[int]
) -> Mapping[int, DescribedTransaction]:
    """Every broker coordinates some. One that does not answer may be the one that knows."""
    known: dict[int, DescribedTransaction] = {}
    for broker in brokers:
        try:
            listed = connections.ask(broker, ListTransactions(producer_ids))
            ids = [one.transactional_id for one in listed.transactions]
            described = connections.ask(broker, DescribeTransactions(ids)) if ids else ()
        except BrokersError as error:
            _LOG.info("transactions of broker %s are not known: %s", broker, error)
            continue
        known |= {one.producer_id: one for one in described if not one.error}
    return known


def _described(found: OpenTransaction, known: DescribedTransaction | None) -> OpenTransaction:
    """A coordinator that has no start for it has forgotten it: the transaction hangs."""
    if known is None or known.started_at_ms < 0:
        return found
    return replace(
        found,
        transactional_id=known.transactional_id,
        started_at_ms=known.started_at_ms,
        timeout_ms=known.timeout_ms,
    )
