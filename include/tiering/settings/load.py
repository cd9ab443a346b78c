"""Read the sources of values, and merge them into a `TieringSettings` that has their origins.

Each source is a layer, `{setting name: (value, origin)}`: a TOML file, overrides, the environment.
"""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr, ValidationError

from include.tiering.errors import SettingError, printable
from include.tiering.settings.catalogue import (
    CONFIG_VARIABLE,
    DEFAULT_ORIGIN,
    ENVIRONMENT_PREFIX,
    Setting,
    TieringSettings,
    all_settings,
    by_environment_name,
    by_name,
    environment_name,
    nearest,
)
from include.tiering.settings.fields import default_metadata_url, has_password, mask_login, mask_url
from include.tiering.settings.secret_files import open_to_others
from include.tiering.units import accepted_suffixes

Layer = dict[str, tuple[Any, str]]

STORED_CONFIGS: Final = frozenset(
    {
        "bytes.in.per.sec.threshold",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.fetch.max.bytes.per.second",
        "retention.bytes",
        "retention.ms",
        "tiering.copy.max.bytes.per.second",
        "tiering.copy.total.max.bytes.per.second",
        "tiering.delete.max.requests.per.second",
        "tiering.fetch.max.bytes.per.second",
        "tiering.fetch.total.max.bytes.per.second",
        "total.bytes.in.per.sec.threshold",
    }
)
"""Quotas, thresholds and configs of topics, which only the database has: `configs/config_catalogue.py` declares them.

A test compares the names, because this package cannot import that module.
"""

POOL_CONFIGS: Final = frozenset(
    {"remote.log.manager.copier.thread.pool.size", "remote.log.manager.expiration.thread.pool.size"}
)
"""Sizes of pools that only Airflow has. The size of the reader pool is also a setting, so it is not in this set."""

TARGET_PREFIX: Final = "TIERING_TARGET__"
"""With it begin the variables of the storage that a restore writes into; they are no settings of this deployment."""

_MAX_FILE_BYTES: Final = 1 << 20


def from_file(path: Path) -> Layer:
    """Read a TOML file with tables or dotted keys. If it holds a secret, only its owner may have access.

    Raises:
        SettingError: the file cannot be read or parsed, is larger than 1 MiB, has an unknown name, sets a setting
            twice, or holds a secret although its mode gives group or others a permission.
    """
    layer = from_mapping(_parse(path), f"file {printable(str(path))}")
    secrets = [name for name, (value, _) in layer.items() if _is_secret(name, value)]
    if secrets:
        refusal = open_to_others(f"{printable(str(path))} holds a secret ({secrets[0]})", path.stat().st_mode)
        if refusal:
            raise SettingError(f"{refusal}, or set {by_name()[secrets[0]].environment_name} instead")
    return layer


def from_mapping(values: Mapping[str, Any], origin: str) -> Layer:
    """Read nested or dotted names. Raises SettingError for an unknown name, or a setting that is set twice."""
    layer: Layer = {}
    for name, value in _flat(values, ""):
        if name not in by_name():
            raise SettingError(f"unknown setting {printable(name)} ({origin}): {_hint(name, name, list(by_name()))}")
        _put(layer, name, by_name()[name], value, origin)
    return layer


def from_environment(environ: Mapping[str, str]) -> Layer:
    """Read all `TIERING_...` variables except `TIERING_CONFIG` and those of the storage that a restore writes into.

    A known variable that is empty counts as not set.

    Lists may be written as JSON. Raises SettingError for an unknown variable, for a setting that two variables set, and
    for invalid JSON.
    """
    known = by_environment_name()
    stored = {environment_name(name): name for name in STORED_CONFIGS | POOL_CONFIGS}
    layer: Layer = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable.startswith(TARGET_PREFIX):
            continue
        if variable not in known:
            hint = _hint(variable, stored.get(variable), list(known))
            raise SettingError(f"unknown setting {printable(variable)} (environment): {hint}")
        if text:
            setting = known[variable]
            value = _json_list(variable, text) if setting.is_list and text.startswith("[") else text
            _put(layer, variable, setting, value, f"environment {variable}")
    return layer


def _hint(called: str, name: str | None, known: list[str]) -> str:
    """Say what to do about a name that is no setting."""
    if name in POOL_CONFIGS:
        why = "it is the size of a pool, which Airflow stores"
    elif name in STORED_CONFIGS:
        why = "it is stored in the database with its author and may be changed while jobs run"
    else:
        return nearest(called, known)
    return (
        f"{name} has no effect here, as {why}: leave it out, and set it with ./tiering configs --alter --add-config or "
        "the DAG tiering_configs"
    )


def _put(layer: Layer, called: str, setting: Setting, value: Any, origin: str) -> None:
    """Add a value to the layer. Raise SettingError if the layer has one already, for example under an alias."""
    if setting.name in layer:
        also = f", whose names are {' and '.join(setting.names)}" if setting.aliases else ""
        raise SettingError(f"{called} ({origin}) sets {setting.name} a second time{also}: leave one of them out")
    layer[setting.name] = (value, origin)


def _parse(path: Path) -> dict[str, Any]:
    shown = printable(str(path))
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingError(f"configuration file {shown} cannot be read: {error.strerror or error}") from error
    if len(text) > _MAX_FILE_BYTES:
        raise SettingError(f"configuration file {shown} is larger than {_MAX_FILE_BYTES} bytes")
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"configuration file {shown} is not TOML: {error}") from error
    except RecursionError:
        raise SettingError(f"configuration file {shown} is not TOML: it is nested too deeply") from None


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = prefix + key
        if isinstance(value, Mapping) and name not in by_name():
            yield from _flat(value, name + ".")
        else:
            yield name, value


def _json_list(variable: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingError(f"{variable} starts like a JSON list but is not one: {error}") from error


def _is_secret(name: str, value: Any) -> bool:
    return by_name()[name].secret and isinstance(value, str) and ("://" not in value or has_password(value))


DEFAULT_OVERRIDES_ORIGIN = "Airflow connection"


def load_settings(
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides_origin: str = DEFAULT_OVERRIDES_ORIGIN,
) -> TieringSettings:
    """Load settings: default < file < `overrides` < environment.

    `config` is the TOML file; by default it is the file that `TIERING_CONFIG` names, if that variable is set.
    `overrides` has nested or dotted names. `environ` is by default the process's environment.

    Raises:
        SettingError: the file or an environment variable cannot be used, or a name or value is not accepted; of a
            value the message names the setting, the value unless it is secret, its origin, and the rule.
    """
    environ = os.environ if environ is None else environ
    chosen = config or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    layer: Layer = {"metadata.url": (default_metadata_url(environ), DEFAULT_ORIGIN)}
    if chosen is not None:
        layer |= from_file(chosen)
    layer |= from_mapping(overrides or {}, overrides_origin)
    layer |= from_environment(environ)
    try:
        return TieringSettings.model_validate(
            _nested(layer), context={name: origin for name, (_, origin) in layer.items()}
        )
    except ValidationError as error:
        raise SettingError("\n".join(_sentences(error, layer))) from None


def to_environment(settings: TieringSettings) -> dict[str, str]:
    """Return `TIERING_...` variables from which another process loads the same values, secrets included.

    Use them only for the environment of a child process, never for arguments, files or logs.
    """
    variables = {}
    for setting in all_settings():
        value = setting.value(settings)
        if isinstance(value, tuple):
            value = json.dumps(setting.shown(settings))
        if value is not None:
            variables[setting.environment_name] = _text(value)
    return variables


def _nested(layer: Layer) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, (value, _) in layer.items():
        *sections, field = by_name()[name].path
        target = values
        for section in sections:
            target = target.setdefault(section, {})
        target[field] = value
    return values


def _sentences(error: ValidationError, layer: Layer) -> list[str]:
    return [_sentence(problem["loc"], problem["msg"], layer) for problem in error.errors(include_url=False)]


def _sentence(location: tuple[int | str, ...], message: str, layer: Layer) -> str:
    setting = next(known for known in all_settings() if location[: len(known.path)] == known.path)
    inner = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location[len(setting.path) :])
    value, origin = layer.get(setting.name, (None, DEFAULT_ORIGIN))
    shown = "a secret value" if setting.secret else mask_login(mask_url(repr(value)))
    own_rule = "Value error, "
    reason = (
        message.removeprefix(own_rule)
        if message.startswith(own_rule)
        else f"{message}; accepted: {setting.accepts}{accepted_suffixes(setting.unit)}"
    )
    return f"{setting.name} is {shown} ({origin}){inner and ', at ' + inner}: {reason}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def database_words(settings: TieringSettings) -> str:
    """Name a database that is not set up: its URL without a password, where the URL is from, and the ways out."""
    origin = settings.origin("metadata.url")
    unset = "" if CONFIG_VARIABLE in os.environ or origin != DEFAULT_ORIGIN else f", {CONFIG_VARIABLE} is not set"
    return (
        f"database {mask_url(settings.metadata.url.get_secret_value())} (metadata.url: {origin}{unset}): "
        "correct metadata.url, or set this database up with ./tiering migrate"
    )
