"""`partition.metadata` of a partition directory: which topic it belongs to.

    version: 0
    topic_id: DhwUnU7hQAGOf7zmLzw1Gg

Source: Kafka's PartitionMetadataFile (any version from 0 on is read, the all-zero id is not valid).
"""

import re
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.model.ids import Uuid
from include.tiering.units import KIB

MAX_PARTITION_METADATA_BYTES: Final = KIB
_FORM: Final = re.compile(rb"version:\s*([0-9]{1,9})\s*\ntopic_id:\s*([A-Za-z0-9_-]{22})\s*")


def parse(data: bytes) -> Uuid:
    """The topic id. Raises FormatError if the text has another form or the id is no Uuid or zero."""
    found = _FORM.fullmatch(data) if len(data) <= MAX_PARTITION_METADATA_BYTES else None
    if found is None:
        raise FormatError(f"{len(data)} bytes that are not the two lines version and topic_id")
    try:
        topic_id = Uuid.parse(found[2].decode())
    except ValueError as error:
        raise FormatError(str(error), found.start(2)) from error
    if topic_id.is_zero:
        raise FormatError("the topic id is zero", found.start(2))
    return topic_id


def serialize(topic_id: Uuid) -> bytes:
    """The bytes that a broker writes: no line end behind the id."""
    return f"version: 0\ntopic_id: {topic_id}".encode()
