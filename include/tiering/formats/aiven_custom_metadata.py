"""What the plugin returns to the broker for a copied segment, which keeps it in the metadata topic.

A flexible struct of Kafka with nothing but a tagged section:

    unsigned varint    number of fields
    each field, ascending by tag:
      unsigned varint  tag
      unsigned varint  length of the value
      ..               value

    tag    field            value
    0      REMOTE_SIZE      varlong: zigzag, base 128
    1      OBJECT_PREFIX    unsigned varint of the length + 1, UTF-8
    2      OBJECT_KEY       the same

Source: Aiven's tiered-storage-for-apache-kafka 1.2, `metadata.SegmentCustomMetadataSerde`.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from include.tiering.formats.varint import write_uvarint, write_varlong

MAX_REMOTE_SIZE_BYTES: Final = 2**33
"""More than the three objects of a segment can have."""


class CustomMetadataField(IntEnum):
    """By tag."""

    REMOTE_SIZE = 0
    OBJECT_PREFIX = 1
    OBJECT_KEY = 2


def encode(values: Mapping[CustomMetadataField, int | str]) -> bytes:
    """Values of REMOTE_SIZE are integers, those of the others texts."""
    content = write_uvarint(len(values))
    for tag, value in sorted(values.items()):
        encoded = write_varlong(value) if isinstance(value, int) else _compact_string(value)
        content += write_uvarint(tag) + write_uvarint(len(encoded)) + encoded
    return content


def _compact_string(text: str) -> bytes:
    content = text.encode()
    return write_uvarint(len(content) + 1) + content
