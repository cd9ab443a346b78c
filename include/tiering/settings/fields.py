"""Declaration of settings: sections, and checks of single values.

A section is frozen and rejects unknown names. The checks of values are pure. They raise a ValueError whose message says
which values are accepted, or what is wrong.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from include.tiering.units import without_suffix

MOST_INT: Final = 2**31 - 1
MOST_LONG: Final = 2**63 - 1
"""Kafka's largest values of the types `int` and `long`, inclusive."""
MOST_MAPPED: Final = 1_024
"""Airflow's own limit of the batches that a task is mapped to: the default of `[core] max_map_length`."""


class Loosens(StrEnum):
    """The direction of a change of a setting that permits more deletions without an approval, or earlier deletions."""

    UPWARDS = "upwards"
    DOWNWARDS = "downwards"


class Section(BaseModel):
    """Settings that belong together.

    An amount in a known unit may be written with a suffix: ``50MiB``, ``7d``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _amounts(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        unit = extra.get("unit")
        return without_suffix(value, unit) if isinstance(value, str) and isinstance(unit, str) else value


class DynamicSection(Section):
    """Settings named in Kafka's style, below `prefix`; a setting that means the same as a Kafka config has its name."""

    prefix: ClassVar[str]


def operational(
    default: float | bool | str,
    sentence: str,
    *,
    unit: str | None = None,
    dynamic: bool = True,
    at_least: float | None = None,
    at_most: float = MOST_INT,
    accepts: str | None = None,
    aliases: tuple[str, ...] = (),
    loosens: Loosens | None = None,
    lower_stored: bool = False,
) -> Any:
    """Declare a field of a `DynamicSection`: a number with inclusive bounds, a switch, or text with its own validator.

    `accepts` replaces the description of accepted values that is derived from type and bounds. `aliases` are other full
    names under which the user may set the field. `loosens` marks a deletion limit: if approvers are configured,
    Airflow's form accepts a looser value only from them. With `lower_stored`, a stored value above `at_most`, which an
    earlier version accepted, counts as `at_most`; otherwise such a value is an error of every command.
    """
    extra: dict[str, Any] = {"unit": unit, "dynamic": dynamic, "accepts": accepts, "aliases": list(aliases)}
    extra |= {"loosens": loosens, "stored_at_most": at_most if lower_stored else None}
    bounds: dict[str, Any] = {} if isinstance(default, (bool, str)) else {"ge": at_least, "le": at_most}
    return Field(default=default, description=sentence, json_schema_extra=extra, **bounds)


MASK: Final = "***"
KEEP: Final = "keep"
TOPIC_DELETION_VALUES: Final = "keep, or expire:Nd with N days from 1 to 99999, such as expire:30d"
# A queue is part of a task id in Airflow, a Spark resource part of a name in Spark's configuration.
QUEUE_NAME: Final = r"^[a-zA-Z0-9._-]{1,200}$"
SPARK_RESOURCE_NAME: Final = r"^[a-zA-Z][a-zA-Z0-9_-]{0,99}$"
_EXPIRE_AFTER: Final = re.compile(r"expire:([1-9][0-9]{0,4})d\Z")
_PRICE: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?\Z")
_TOPIC_PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?\[\]!-]{1,249}\Z")
_DATABASES: Final = ("sqlite", "postgresql", "postgresql+psycopg")
_PASSWORD: Final = re.compile(r"([a-zA-Z][\w+.-]*://[^:@/]*):.*@")
_LOGIN: Final = re.compile(r"[^\s,'\"/@:]++:[^\s,'\"]*@")
_SECRET_PARAMETER: Final = re.compile(r"(?i)((?:^|&)[^&=]*(?:password|secret|token)[^&=]*=)[^&]*")


def split_commas(value: Any) -> Any:
    """``"a, b"`` -> ``["a", "b"]``; other types are returned unchanged."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def split_log_dirs(value: Any) -> Any:
    """``"1:/a,2:/b"`` -> a list with `broker_id` and `path` of each entry; lists of tables are returned unchanged."""
    return [_log_dir(entry) for entry in split_commas(value)] if isinstance(value, str) else value


def _log_dir(entry: str) -> dict[str, str]:
    broker_id, separator, path = entry.partition(":")
    if not separator:
        raise ValueError(f"{entry!r} is not BROKER_ID:PATH")
    return {"broker_id": broker_id, "path": path}


def check_topic_pattern(pattern: Any) -> Any:
    if isinstance(pattern, str) and _TOPIC_PATTERN.match(pattern) is None:
        raise ValueError("a topic pattern has 1 to 249 of letters, digits, '.', '_', '-' and the wildcards * ? [ ] !")
    return pattern


def check_directories(paths: Sequence[Path]) -> None:
    """Check that each path is absolute, has no ``..`` and appears once."""
    seen: set[Path] = set()
    for path in paths:
        if not path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{str(path)!r} is not an absolute path without '..'")
        if path in seen:
            raise ValueError(f"{str(path)!r} is listed twice")
        seen.add(path)


def check_byte_bound(value: int) -> int:
    if value == 0:
        raise ValueError("0 bytes would admit no request; accepted: an integer of at least 1, or -1 for no bound")
    return value


def check_topic_deletion(value: Any) -> Any:
    """Check the value of `tiering.on.topic.delete`, ``keep`` or ``expire:30d``, and return it without outer spaces."""
    if isinstance(value, str) and value.strip() != KEEP:
        days_of_expiry(value.strip())
    return value.strip() if isinstance(value, str) else value


def days_of_expiry(value: str) -> int | None:
    """``expire:30d`` -> 30, ``keep`` -> None. Raise ValueError for other texts."""
    if value == KEEP:
        return None
    found = _EXPIRE_AFTER.match(value)
    if found is None:
        raise ValueError(f"accepted: {TOPIC_DELETION_VALUES}")
    return int(found[1])


def check_absolute_path(path: Any) -> Any:
    if isinstance(path, str) and (not path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path):
        raise ValueError("accepted is an absolute path without '..'")
    return path


def check_price(price: Any) -> Any:
    """Convert text or a TOML number to text, so that 0.023 keeps its exact value."""
    text = str(price) if isinstance(price, (str, int, float)) and not isinstance(price, bool) else ""
    if _PRICE.match(text) is None:
        raise ValueError("accepted is a decimal number such as 0.023, without sign or exponent")
    return text


def check_endpoint_url(url: Any) -> Any:
    if isinstance(url, str):
        parts = _split(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("accepted is http(s)://host:port without credentials")
    return url


def check_metadata_url(url: Any) -> Any:
    """Check a SQLAlchemy URL of a database that several processes can share. Error messages never contain the URL."""
    text = url.get_secret_value() if isinstance(url, SecretStr) else url
    if isinstance(text, str):
        parts = _split(text)
        if parts.scheme not in _DATABASES:
            raise ValueError("accepted are sqlite:////path and postgresql+psycopg://user:password@host/database")
        if "@" in parts.netloc.rpartition("@")[0].partition(":")[2]:
            # What stands behind the first one would be taken for the host, and shown in errors.
            raise ValueError("an @ in a user or password is written %40")
        if parts.scheme == "sqlite" and (parts.netloc or not parts.path.startswith("//")):
            raise ValueError("a SQLite database is a file with an absolute path: sqlite:////path (four slashes)")
    return url


_INDEX_CACHE: Final = "remote-log-index-cache"


def default_metadata_url(environ: Mapping[str, str]) -> str:
    """Return the URL of a SQLite file in the user's state directory (XDG), whatever the working directory is."""
    state_home = environ.get("XDG_STATE_HOME", "")
    base = Path(state_home) if state_home.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".local/state"
    return f"sqlite:///{base / 'tiering' / 'metadata.sqlite'}"


def index_cache_directory(metadata_url: str, environ: Mapping[str, str]) -> Path:
    """Return where indexes of segments are kept: next to a SQLite file, else in the user's directory for caches (XDG).

    A SQLite file is on a disk of this host, and a process that uses it can also write into its directory.
    """
    database = urlsplit(metadata_url)
    if database.scheme == "sqlite":
        return Path(database.path[1:]).parent / _INDEX_CACHE
    return cache_home(environ) / "tiering" / _INDEX_CACHE


def cache_home(environ: Mapping[str, str]) -> Path:
    """Return the user's directory for caches, as the XDG Base Directory Specification says."""
    named = environ.get("XDG_CACHE_HOME", "")
    return Path(named) if named.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"


def mask_url(url: str) -> str:
    """Return the URL with `MASK` in place of the password and of every parameter whose name looks like a secret."""
    base, question, query = _PASSWORD.sub(rf"\1:{MASK}@", url).partition("?")
    return base + question + _SECRET_PARAMETER.sub(rf"\1{MASK}", query)


def mask_login(text: str) -> str:
    """Return the text with `MASK` in place of what stands before an `@`, as in ``user:password@host``."""
    return _LOGIN.sub(f"{MASK}@", text)


def is_secret_parameter(name: str) -> bool:
    """Return whether the name of a URL's parameter looks like that of a secret."""
    return _SECRET_PARAMETER.match(f"{name}=") is not None


def has_password(url: str) -> bool:
    return mask_url(url) != url


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ValueError("not a URL") from error
