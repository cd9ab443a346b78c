"""From settings to the layout of a store."""

from typing import Any

from include.tiering.formats.aiven_manifest import CustomMetadataField
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.segment_keys import SegmentKeys
from include.tiering.settings import RemoteStorageSettings


def layout_options(remote: RemoteStorageSettings) -> dict[str, Any]:
    """Arguments of `open_storage` that choose the layout, its form and the keys for it. Raises as `form_of` does."""
    return {"layout": remote.layout, "form": form_of(remote), "keys": _keys(remote)}


def form_of(remote: RemoteStorageSettings) -> AivenForm:
    """The form of new segments.

    Raises:
        SettingError: a chunk size that cannot be held in memory.
    """
    fields = frozenset(CustomMetadataField[name] for name in remote.custom_metadata_fields_include)
    return AivenForm(
        chunk_size_bytes=remote.chunk_size,
        compresses=remote.compression_enabled,
        unless_compressed=remote.compression_heuristic_enabled,
        encrypts=remote.encryption_enabled,
        custom_metadata=fields,
        custom_metadata_max_bytes=remote.custom_metadata_max_bytes,
        key_prefix=remote.key_prefix,
        with_txn_index_empty=remote.brokers_write_txn_idx_empty,
    )


def _keys(remote: RemoteStorageSettings) -> SegmentKeys | None:
    """None without key pairs."""
    if not remote.encryption_key_pairs:
        return None
    # Ciphers take a tenth of a second to import: only those who use them wait.
    from include.tiering.remote_storage.layouts.key_ring import KeyPairFiles, KeyRing

    return KeyRing([KeyPairFiles(*pair) for pair in remote.key_pairs], remote.encryption_key_pair_id)
