"""Where segments are stored, and in which format. Settings of the format have the names of Aiven's plugin."""

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator

from include.tiering.errors import SettingError
from include.tiering.settings.fields import Section, check_endpoint_url, split_commas
from include.tiering.units import MIB

_T = TypeVar("_T")

MOST_CHUNK_BYTES: Final = 1_073_741_823
_RELEASE: Final = re.compile(r"[1-9][0-9]?\.[0-9]{1,2}(\.[0-9]{1,3})?\Z")
_KEY_PREFIX: Final = re.compile(r"([A-Za-z0-9._-]+/)*[A-Za-z0-9._-]*\Z")
_KEY_PAIR_ID: Final = re.compile(r"[^:,\s]{1,256}\Z")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")


def split_storage_url(url: str) -> SplitResult:
    """Split ``file:///absolute/directory``, whose path is returned without percent-encoding, or ``s3://bucket/prefix``.

    The prefix of a bucket is part of keys: `remote_storage.location` checks it as it checks keys.

    Raises:
        ValueError: the URL has neither form. The message never repeats a part that may be a secret.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValueError("not a URL") from error
    if "@" in parts.netloc:
        raise ValueError(
            "it holds credentials: take them out, change them,"
            " and give them through the environment (AWS_ACCESS_KEY_ID, …) or a profile"
        )
    if "?" in url or "#" in url:
        raise ValueError("it has a query or a fragment: only a place is accepted")
    path = unquote(parts.path, errors="surrogateescape")
    if ".." in PurePosixPath(path).parts or "\0" in path:
        raise ValueError("'..' and control characters are not allowed in it")
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and path.startswith("/") and path.strip("/"):
        return parts._replace(path=path)
    if parts.scheme != "s3":
        raise ValueError("accepted are file:///absolute/directory and s3://bucket/prefix")
    if _BUCKET.match(parts.netloc) is None:
        raise ValueError(f"{parts.netloc!r} is no bucket name (3 to 63 of a-z 0-9 . -)")
    return parts


def _check_url(url: Any) -> Any:
    """Check the URL and drop trailing slashes. Hosts of file URLs, backslashes and control characters are refused."""
    if not isinstance(url, str):
        return url
    parts = split_storage_url(url)
    if (parts.scheme == "file" and parts.netloc) or "\\" in url or not url.isprintable():
        raise ValueError("a host, backslashes and control characters are not allowed in it")
    return url.rstrip("/")


class KeyPairFiles(NamedTuple):
    """An entry of `remote_storage.encryption_key_pairs`. Its segments cannot be read without the private key."""

    key_pair_id: str
    public_key: Path
    private_key: Path | None


class RemoteStorageSettings(Section):
    """Where segments are stored, and in which format."""

    url: Annotated[str, BeforeValidator(_check_url)] | None = Field(
        default=None,
        description="`file:///directory` or `s3://bucket/prefix`. Required to copy or read remote data.",
    )
    endpoint_url: Annotated[str, BeforeValidator(check_endpoint_url)] | None = Field(
        default=None, description="Address of an S3 server other than AWS, such as `https://s3.example.net:7070`."
    )
    region: str | None = Field(default=None, description="S3 region. Unset: the AWS SDK determines it.")
    layout: Literal["aiven", "local_tiered_storage"] = Field(
        default="aiven",
        description="Object names and formats that brokers can read: those of Aiven's tiered storage plugin, or of "
        "Kafka's own test storage (`file://` only: `url` is the directory that `rsm.config.dir` names).",
    )
    key_prefix: str = Field(
        default="",
        description="Aiven layout: prefix of segments' keys inside `url`, prepended unchanged. The brokers' "
        "`key.prefix` is this value, after the prefix and a slash if an `s3://` `url` has a prefix. Once there are "
        "segments, run `./tiering relocate-store` after a change of it.",
        json_schema_extra={"default_text": "empty"},
    )
    chunk_size: int = Field(
        default=4 * MIB,
        ge=1,
        le=MOST_CHUNK_BYTES,
        description="Aiven layout, the plugin's `chunk.size`, in bytes: how much a broker requests at once, and "
        "the unit of compression and encryption. If `compression_enabled` or `encryption_enabled` is true, at most "
        "134217728.",
        json_schema_extra={"unit": "bytes"},
    )
    compression_enabled: bool = Field(
        default=False, description="Aiven layout, the plugin's `compression.enabled`: compress each chunk with zstd."
    )
    compression_heuristic_enabled: bool = Field(
        default=False,
        description="The plugin's `compression.heuristic.enabled`: compress only if the first batch is not compressed.",
    )
    encryption_key_pairs: Annotated[tuple[str, ...], BeforeValidator(split_commas)] = Field(
        default=(),
        description="Aiven layout: key pairs as `ID:PUBLIC.pem` or `ID:PUBLIC.pem:PRIVATE.pem` with absolute paths, "
        "readable where jobs run, private keys only by their owner (mode 0600). Keep the pairs of stored segments in "
        "the list; without a pair's private key, segments encrypted with it cannot be verified or fetched.",
    )
    encryption_key_pair_id: str | None = Field(
        default=None,
        description="The plugin's `encryption.key.pair.id`: id of the pair in `encryption_key_pairs` for new segments.",
    )
    encryption_enabled: bool = Field(
        default=False, description="The plugin's `encryption.enabled`: use AES-256-GCM, with a key for each segment."
    )
    custom_metadata_fields_include: Annotated[
        tuple[Literal["REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY"], ...], BeforeValidator(split_commas)
    ] = Field(
        default=(),
        description="Aiven layout, the plugin's `custom.metadata.fields.include`: what the record of a finished copy "
        "contains for brokers. It must equal the brokers' value.",
    )
    custom_metadata_max_bytes: int = Field(
        default=128,
        ge=0,
        le=1 << 20,
        description="The brokers' `remote.log.metadata.custom.metadata.max.bytes`: a copy that would need more "
        "is refused before it begins.",
        json_schema_extra={"unit": "bytes"},
    )
    kafka_release: str | None = Field(
        default=None,
        description="Release of the brokers, such as `4.1`. From 4.0 on manifests get the member `txnIdxEmpty`, as "
        "those of the brokers do. Unset: they do not get it. No reader needs it.",
    )
    access_key_id: str | None = Field(
        default=None, description="S3 access key. Unset: the AWS SDK's own credential chain."
    )
    secret_access_key: SecretStr | None = Field(
        default=None, description="S3 secret key that belongs to the access key."
    )
    session_token: SecretStr | None = Field(default=None, description="S3 session token of temporary credentials.")

    @property
    def key_pairs(self) -> tuple[KeyPairFiles, ...]:
        return tuple(map(_key_pair, self.encryption_key_pairs))

    @property
    def brokers_write_txn_idx_empty(self) -> bool:
        return self.kafka_release is not None and int(self.kafka_release.partition(".")[0]) >= 4

    def required_url(self) -> str:
        """The URL. Raises SettingError if `remote_storage.url` is not set."""
        if self.url is None:
            raise SettingError(
                "remote_storage.url is not set: give the place of segments, file:///directory or s3://bucket/prefix "
                "(in the configuration file, or as TIERING_REMOTE_STORAGE__URL)"
            )
        return self.url

    @field_validator("layout")
    @classmethod
    def _directories_only(cls, layout: str, info: ValidationInfo) -> str:
        if layout != "aiven" and not str(info.data.get("url") or "file:").startswith("file:"):
            raise ValueError("brokers open the files of this layout: remote_storage.url must be file:///directory")
        return layout

    @field_validator("key_prefix")
    @classmethod
    def _legal_prefix(cls, prefix: str, info: ValidationInfo) -> str:
        parts = prefix.split("/")
        if len(prefix) > 512 or _KEY_PREFIX.match(prefix) is None or not {".", ".."}.isdisjoint(parts):
            raise ValueError("accepted: up to 512 of a-z A-Z 0-9 . _ - /, no name . or .., no // and no leading slash")
        return _aiven_only(prefix, info)

    @field_validator("compression_enabled")
    @classmethod
    def _in_the_aiven_layout(cls, value: bool, info: ValidationInfo) -> bool:
        return _aiven_only(value, info)

    @field_validator("compression_heuristic_enabled")
    @classmethod
    def _with_compression(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("compression_enabled"):
            raise ValueError("it needs remote_storage.compression_enabled")
        return value

    @field_validator("encryption_key_pairs")
    @classmethod
    def _distinct_pairs(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        ids = [_key_pair(entry).key_pair_id for entry in entries]
        if twice := {pair_id for pair_id in ids if ids.count(pair_id) > 1}:
            raise ValueError(f"key pair {min(twice)} is listed twice")
        return entries

    @field_validator("encryption_enabled")
    @classmethod
    def _with_a_key(cls, value: bool, info: ValidationInfo) -> bool:
        known = {_key_pair(entry).key_pair_id for entry in info.data.get("encryption_key_pairs", ())}
        if value and info.data.get("encryption_key_pair_id") not in known:
            raise ValueError(
                "remote_storage.encryption_key_pair_id must name one of remote_storage.encryption_key_pairs"
            )
        return _aiven_only(value, info)

    @field_validator("custom_metadata_fields_include")
    @classmethod
    def _fields_of_aiven(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        return _aiven_only(value, info)

    @field_validator("kafka_release")
    @classmethod
    def _is_release(cls, value: str | None) -> str | None:
        if value is not None and _RELEASE.match(value) is None:
            raise ValueError("accepted is a release such as 3.9 or 4.1.0")
        return value


def _aiven_only(value: _T, info: ValidationInfo) -> _T:
    if value and info.data.get("layout", "aiven") != "aiven":
        raise ValueError(f"it applies only to the aiven layout, remote_storage.layout is {info.data['layout']}")
    return value


def _key_pair(entry: str) -> KeyPairFiles:
    """Parse an entry of the list. Raises ValueError if it has another form."""
    key_pair_id, *paths = entry.split(":")
    if _KEY_PAIR_ID.match(key_pair_id) is None or len(paths) not in (1, 2):
        raise ValueError("accepted is ID:PUBLIC.pem or ID:PUBLIC.pem:PRIVATE.pem")
    for path in paths:
        if not path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
            raise ValueError(f"{path!r} is not an absolute path without '..'")
    return KeyPairFiles(key_pair_id, Path(paths[0]), Path(paths[1]) if len(paths) == 2 else None)
