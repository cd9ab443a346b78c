"""Open the store that the settings name: parse its URL, and choose adapter, layout, form and keys.

A URL names only a place. Credentials come from the settings, or else from the SDK's credential chain.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import SplitResult

from include.tiering.errors import ObjectKeyError, SettingError
from include.tiering.formats.aiven_manifest import CustomMetadataField
from include.tiering.model.ownership import StorePlace
from include.tiering.remote_storage.file.store import FileListing, FileObjectStore
from include.tiering.remote_storage.layouts.aiven import PLAIN, AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm, SegmentKeys
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.remote_storage.layouts.local_tiered_storage import LocalTieredStorageLayout
from include.tiering.remote_storage.object_store import ObjectListing, ObjectStore, S3Credentials, checked_prefix
from include.tiering.remote_storage.orphan_objects import StoredOrphans
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.settings.remote_storage import RemoteStorageSettings, split_storage_url

if TYPE_CHECKING:
    from include.tiering.remote_storage.s3.store import S3ObjectStore

_MAX_PREFIX_LENGTH: Final = 512
_LAYOUTS: Final = (AivenLayout.name, LocalTieredStorageLayout.name)


@dataclass(frozen=True, slots=True)
class FileLocation:
    """An absolute directory. No part of it is in keys; Aiven's plugin has it as `storage.root`."""

    root: Path
    prefix: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class S3Location:
    """A bucket and a key prefix, which is empty or ends in a slash."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """How a bucket is reached, besides its URL. Without credentials the SDK's credential chain is used."""

    endpoint_url: str | None = None
    region: str | None = None
    credentials: S3Credentials | None = None


SDK_CHAIN: Final = StoreAccess()
"""Endpoint, region and credentials as the SDK finds them. A directory needs none of them."""


def parse_location(url: str) -> FileLocation | S3Location:
    """Parse ``file:///absolute/directory`` or ``s3://bucket/prefix``.

    Raises:
        SettingError: anything else. The message never repeats what may be a secret.
    """
    try:
        parts = split_storage_url(url)
    except ValueError as error:
        raise SettingError(f"remote_storage.url: {error}") from None
    return _s3_location(parts) if parts.scheme == "s3" else FileLocation(Path(parts.path))


def place_of(url: str, layout: str, key_prefix: str) -> StorePlace:
    """Return the place of the object keys, with the URL in canonical spelling.

    A canonical URL has no slash at its end and no needless percent-encoding.

    Raises:
        SettingError: as `parse_location`.
    """
    match parse_location(url):
        case FileLocation(root):
            return StorePlace(root.as_uri(), layout, key_prefix)
        case S3Location(bucket, prefix):
            return StorePlace(f"s3://{bucket}/{prefix}".rstrip("/"), layout, key_prefix)


def open_storage(
    url: str,
    access: StoreAccess = SDK_CHAIN,
    *,
    layout: str = AivenLayout.name,
    form: AivenForm = PLAIN,
    keys: SegmentKeys | None = None,
) -> SegmentStorage:
    """Return the storage that `url` names, without any request yet.

    `form` and `keys` are for the aiven layout.

    Raises:
        SettingError: an unusable URL, layout or configuration of S3 (endpoint, region, profile), or encryption without
            `keys`.
    """
    chosen = _layout(layout, url, form, keys)
    return SegmentStorage(_open_store(url, access, chosen.staging_prefix), chosen)


def open_orphans(
    url: str,
    require_ours: Callable[[], None],
    access: StoreAccess = SDK_CHAIN,
    *,
    layout: str = AivenLayout.name,
    form: AivenForm = PLAIN,
) -> StoredOrphans:
    """Return the orphan storage of the place that `url` names; see `open_storage` and `StoredOrphans`.

    `require_ours` raises ForeignStoreError if the store is not this database's. Orphan storage reads and removes
    objects, and encrypts nothing. So its layout has no key pairs, and can be pickled.
    """
    chosen = _layout(layout, url, replace(form, encrypts=False))
    store = _open_store(url, access, chosen.staging_prefix)
    return StoredOrphans(store, chosen, require_ours)


def open_listing(
    url: str,
    access: StoreAccess = SDK_CHAIN,
    *,
    layout: str = AivenLayout.name,
) -> ObjectListing[Any]:
    """Return a listing of everything below the place that `url` names; see `open_storage`."""
    match parse_location(url):
        case FileLocation(root):
            return FileListing(root, _layout(layout, url).staging_prefix)
        case S3Location(bucket, prefix):
            from include.tiering.remote_storage.s3.listing import S3Listing

            return S3Listing(
                bucket, prefix, endpoint_url=access.endpoint_url, region=access.region, credentials=access.credentials
            )


def open_inventory(manifest: str, url: str, access: StoreAccess = SDK_CHAIN) -> ObjectListing[Any]:
    """Return a listing of the place that `url` names from an S3 Inventory; see `open_storage`.

    Args:
        manifest: the inventory's manifest.json: ``s3://bucket/key``, ``file:///path`` or a path. Files that a local
            manifest names are searched below the manifest's directory and below each directory above it.
        url: the store's URL, which must name a bucket.
        access: how the buckets of the store and of the inventory are reached.

    Raises:
        SettingError: `manifest` is not such a URL or path, or `url` does not name a bucket.
    """
    # The import of pyarrow takes a tenth of a second, so it is done only where it is used.
    from include.tiering.remote_storage.inventory import BucketFiles, InventoryListing, LocalFiles

    place = parse_location(url)
    if not isinstance(place, S3Location):
        raise SettingError("an inventory lists a bucket, and remote_storage.url does not name one (s3://…)")
    match parse_location(manifest if "://" in manifest else Path(manifest).absolute().as_uri()):
        case FileLocation(path):
            return InventoryListing(LocalFiles(path.parent, FileObjectStore), path.name, place.bucket, place.prefix)
        case S3Location(bucket, key):
            files = BucketFiles(_open_bucket(bucket, "", access))
            return InventoryListing(files, key.removesuffix("/"), place.bucket, place.prefix)


def _layout(name: str, url: str, form: AivenForm = PLAIN, keys: SegmentKeys | None = None) -> SegmentLayout:
    if name == LocalTieredStorageLayout.name:
        return LocalTieredStorageLayout()
    if name != AivenLayout.name:
        raise SettingError(f"remote_storage.layout {name!r} is unknown: it must be one of {', '.join(_LAYOUTS)}")
    return AivenLayout(replace(form, brokers_prefix=parse_location(url).prefix + form.key_prefix), keys)


def _open_store(url: str, access: StoreAccess, staging_prefix: str) -> ObjectStore:
    match parse_location(url):
        case FileLocation(root):
            return FileObjectStore(root, staging_prefix=staging_prefix)
        case S3Location() if staging_prefix:
            raise SettingError(
                "remote_storage.layout local_tiered_storage is for directories, which brokers open themselves:"
                " remote_storage.url must be file:///…, or remote_storage.layout aiven"
            )
        case S3Location(bucket, prefix):
            return _open_bucket(bucket, prefix, access)


def _open_bucket(bucket: str, prefix: str, access: StoreAccess) -> "S3ObjectStore":
    # The import of boto3 takes a third of a second, so it is done only where it is used.
    from include.tiering.remote_storage.s3.store import S3ObjectStore

    return S3ObjectStore(
        bucket, prefix, endpoint_url=access.endpoint_url, region=access.region, credentials=access.credentials
    )


def _s3_location(parts: SplitResult) -> S3Location:
    prefix = parts.path.strip("/")
    try:
        checked_prefix(prefix)
    except ObjectKeyError as error:
        raise SettingError(f"remote_storage.url: the prefix cannot be used: {error}") from error
    if len(prefix) > _MAX_PREFIX_LENGTH:
        raise SettingError(f"remote_storage.url: a prefix of {len(prefix)} characters exceeds {_MAX_PREFIX_LENGTH}")
    return S3Location(parts.netloc, prefix and f"{prefix}/")


def credentials_of(remote: RemoteStorageSettings) -> S3Credentials | None:
    """Return the credentials of the settings; None: use the SDK's credential chain.

    Raises:
        SettingError: only one of key id and secret is set.
    """
    if remote.access_key_id is None and remote.secret_access_key is None:
        return None
    if remote.access_key_id is None or remote.secret_access_key is None:
        raise SettingError("remote_storage.access_key_id and remote_storage.secret_access_key must be set together")
    token = remote.session_token.get_secret_value() if remote.session_token is not None else None
    return S3Credentials(remote.access_key_id, remote.secret_access_key.get_secret_value(), token)


def access_of(remote: RemoteStorageSettings) -> StoreAccess:
    """Return endpoint, region and credentials of the settings. Raises SettingError as `credentials_of` does."""
    return StoreAccess(remote.endpoint_url, remote.region, credentials_of(remote))


def layout_options(remote: RemoteStorageSettings) -> dict[str, Any]:
    """Return the arguments of `open_storage` for the layout, its form and its keys. Raises as `form_of` does."""
    return {"layout": remote.layout, "form": form_of(remote), "keys": _keys(remote)}


def form_of(remote: RemoteStorageSettings) -> AivenForm:
    """Return the form of new segments.

    Raises:
        SettingError: a chunk size out of bounds, see `AivenForm`.
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
    """Return the key ring; None if no key pairs are set."""
    if not remote.encryption_key_pairs:
        return None
    # The import of the ciphers takes a tenth of a second, so it is done only where they are used.
    from include.tiering.remote_storage.layouts.key_ring import KeyRing, PemKeyPair

    return KeyRing([PemKeyPair(*pair) for pair in remote.key_pairs], remote.encryption_key_pair_id)
