"""The right to change one partition in one role."""

from dataclasses import dataclass
from enum import StrEnum

from include.tiering.model.ids import TopicIdPartition


class LeaseRole(StrEnum):
    """What the holder of a lease does with the partition. As in Kafka, one copies while another expires.

    Each role has its own leases and tokens. Where two want the same segment, compare-and-set on its state decides.
    PUBLISH changes no segment: its holder is the one who writes about the partition into the metadata topic.
    """

    COPY = "copy"
    EXPIRE = "expire"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Fence:
    """Right to change one partition in one role.

    A change with a token that is not the newest of its role fails with LeaseLostError.
    """

    topic_id_partition: TopicIdPartition
    token: int
    role: LeaseRole = LeaseRole.COPY
