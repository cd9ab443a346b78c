"""The end of a partition in the remote log metadata. No broker writes it; every broker reads it.

    (none) --> DELETE_PARTITION_MARKED --> DELETE_PARTITION_STARTED --> DELETE_PARTITION_FINISHED

Staying in a state is legal.
"""

from enum import IntEnum


class RemotePartitionDeleteState(IntEnum):
    """The value is the id on Kafka's wire."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2
