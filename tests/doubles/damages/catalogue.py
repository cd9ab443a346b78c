"""Every kind of damage, by what it is done to."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.doubles.damages import of_manifests, of_objects, of_partitions, of_segments
from tests.doubles.damages.damage import Damage

CATALOGUE: Final[Mapping[str, Sequence[Damage]]] = {
    "Batch header, not under the CRC": of_segments.OUTSIDE_OF_THE_CRC,
    "Batch header and records, the CRC left": of_segments.UNDER_THE_CRC,
    "Batch header and records, with a new CRC": of_segments.WITH_A_NEW_CRC,
    "Batch header and records, found only by the source's checksum": of_segments.BY_THE_CHECKSUM_ALONE,
    "Order of batches": of_segments.ORDER_OF_BATCHES,
    "Length of the log": of_segments.LENGTH,
    "Offset index": of_segments.OFFSET_INDEX,
    "Time index": of_segments.TIME_INDEX,
    "Transaction index": of_segments.TRANSACTION_INDEX,
    "Producer snapshot": of_segments.PRODUCER_SNAPSHOT,
    "Leader epochs": of_segments.LEADER_EPOCHS,
    "Manifest: what it describes": of_manifests.WHAT_IT_DESCRIBES,
    "Manifest: how objects are read": of_manifests.HOW_IT_IS_READ,
    "Objects that are gone": of_objects.GONE,
    "Objects of another segment, or time": of_objects.OF_ANOTHER_SEGMENT,
    "Wrong keys": of_objects.WRONG_KEYS,
    "Objects that are too many": of_objects.TOO_MANY,
    "Segments of a partition": of_partitions.SUCCESSION,
}

OF_LOGS: Final = tuple(CATALOGUE)[:6]

NOT_CAUGHT: Final[Mapping[str, Sequence[Damage]]] = {
    "Harmless": of_segments.HARMLESS,
    "Unseen": (*of_segments.UNSEEN, *of_manifests.UNSEEN),
    "Unseen where the metadata has the checksum of the damaged log": tuple(
        damage.where_the_record_follows for damage in of_segments.BY_THE_CHECKSUM_ALONE
    ),
}
"""Kinds of which nothing tells."""
