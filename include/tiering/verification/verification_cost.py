"""What a verification will cost, said before it starts: bytes, requests, and the time at a quota. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.model.segment_metadata import Depth, RemoteLogSegmentMetadata
from include.tiering.quotas.contract import QuotasInForce, Scope, fetch_scopes

_INDEX_BYTES_PER_INTERVAL: Final = 20
_INTERVAL_BYTES: Final = 4096
"""Kafka's `index.interval.bytes`: after so many an offset index gets 8 bytes more, a time index 12."""

_ABOUT_BYTES: Final = {Depth.SHALLOW: 17 * 1024, Depth.DEEP: 1024}
"""Manifest, producer snapshot and leader epochs of a usual segment, and what a shallow look takes of its log: more
where the last batch is large."""

_ABOUT_REQUESTS: Final = {Depth.SHALLOW: 8, Depth.DEEP: 6}
"""A look at each object, the manifest, the indexes, and one range of the log or, of a usual log, three."""


@dataclass(frozen=True, slots=True)
class ReadCost:
    """About so many bytes are read and so many requests sent. `seconds`: at the fetch quota; None without one."""

    read_bytes: int
    requests: int
    seconds: float | None


def bytes_to_read(segment: RemoteLogSegmentMetadata, depth: Depth) -> int:
    """About how much of the store a measure of this segment reads."""
    log_bytes = segment.segment_size_bytes
    indexes = log_bytes // _INTERVAL_BYTES * _INDEX_BYTES_PER_INTERVAL
    of_log = log_bytes if depth is Depth.DEEP else 0
    return of_log + indexes + _ABOUT_BYTES[depth]


class CostOfReading:
    """Adds segments up."""

    def __init__(self) -> None:
        self._bytes_by_scope: Counter[Scope] = Counter()
        self._read_bytes = 0
        self._requests = 0

    def add(self, segment: RemoteLogSegmentMetadata, depth: Depth) -> None:
        size_bytes = bytes_to_read(segment, depth)
        self._read_bytes += size_bytes
        self._requests += _ABOUT_REQUESTS[depth]
        for scope in fetch_scopes(segment.broker_id, segment.topic_id_partition.topic):
            self._bytes_by_scope[scope] += size_bytes

    def total(self, quotas: QuotasInForce) -> ReadCost:
        return ReadCost(self._read_bytes, self._requests, seconds_at(quotas, self._bytes_by_scope))


def seconds_at(quotas: QuotasInForce, bytes_by_scope: Mapping[Scope, int]) -> float | None:
    """The scope that takes longest: every byte is charged in all of its scopes, and they run side by side."""
    rates = ((size_bytes, quotas.of(scope)) for scope, size_bytes in bytes_by_scope.items())
    return max((size_bytes / rate for size_bytes, rate in rates if rate is not None), default=None)
