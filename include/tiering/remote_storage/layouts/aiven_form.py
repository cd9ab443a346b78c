"""In which form segments of the aiven layout are written. All forms are read, whatever is set here."""

from dataclasses import dataclass
from typing import Final

from include.tiering.errors import SettingError
from include.tiering.formats.aiven_chunks import MAX_CHUNK_SIZE_BYTES
from include.tiering.formats.aiven_manifest import CustomMetadataField
from include.tiering.remote_storage.layouts.stored_form import MAX_CHUNK_BYTES
from include.tiering.units import MIB, format_bytes

BROKERS_LIMIT_BYTES: Final = 128
"""Default of the brokers' `remote.log.metadata.custom.metadata.max.bytes`."""


@dataclass(frozen=True, slots=True)
class AivenForm:
    """As the plugin's keys of the same names, see docs/layouts.md.

    Attributes:
        chunk_size_bytes: how much a broker asks for at once, 1..2^30-1.
        compresses, unless_compressed: zstd, chunk by chunk; only where the first batch of a segment is uncompressed.
        encrypts: for the active key pair.
        custom_metadata: what brokers are to remember of a segment.
        custom_metadata_max_bytes: how much they take.
        key_prefix: before every key of a segment, inside the store's own prefix, and glued on as it is.
        brokers_prefix: what brokers know as `key.prefix`: the prefix of the store's URL, and `key_prefix`.
        with_txn_index_empty: manifests have the member that brokers of the 4.x line write; no reader asks for it.

    Raises:
        SettingError: a chunk size out of bounds.
    """

    chunk_size_bytes: int = 4 * MIB
    compresses: bool = False
    unless_compressed: bool = False
    encrypts: bool = False
    custom_metadata: frozenset[CustomMetadataField] = frozenset()
    custom_metadata_max_bytes: int = BROKERS_LIMIT_BYTES
    key_prefix: str = ""
    brokers_prefix: str = ""
    with_txn_index_empty: bool = False

    def __post_init__(self) -> None:
        most_bytes = MAX_CHUNK_BYTES if self.compresses or self.encrypts else MAX_CHUNK_SIZE_BYTES - 1
        if not 0 < self.chunk_size_bytes <= most_bytes:
            raise SettingError(
                f"remote_storage.chunk_size {self.chunk_size_bytes}: 1 to {most_bytes} bytes are possible"
                f" (compressed or encrypted up to {format_bytes(MAX_CHUNK_BYTES)}: chunks are held in memory)"
            )
