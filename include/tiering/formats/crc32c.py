"""CRC-32C (Castagnoli): the checksum of Kafka's batches and of whole remote objects."""

import google_crc32c


def extend_crc32c(crc32c: int, data: bytes) -> int:
    """CRC-32C of what `crc32c` covers followed by `data`; start with 0."""
    return int(google_crc32c.extend(crc32c, data))
