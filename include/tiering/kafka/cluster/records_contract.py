"""What a consumer gets from the brokers of a range of a partition."""

from collections.abc import Iterator
from typing import Protocol

from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_data import SeenRecord


class ServedRecords(Protocol):
    """A plain consumer, in no group. Repeating a call gives the same records."""

    def read(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> Iterator[SeenRecord]:
        """Records with offsets from `start_offset` to `end_offset`, both inclusive, ascending, of aborted transactions
        too; control records are left out. It ends when nothing below `end_offset` is left to come.

        Raises:
            BrokersUnavailableError: no answer in time. Retriable.
            BrokersRefusedError: the brokers do not serve `start_offset`, or refuse.
        """
        ...
