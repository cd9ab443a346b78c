"""The places that values come from, each read into `{setting name: (value, origin)}`."""

import json
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from include.tiering.errors import SettingError, printable
from include.tiering.settings.catalogue import (
    CONFIG_VARIABLE,
    ENVIRONMENT_PREFIX,
    Setting,
    by_environment_name,
    by_name,
    nearest,
)
from include.tiering.settings.rules import has_password

Layer = dict[str, tuple[Any, str]]

_OTHERS_MAY_READ: Final = stat.S_IRWXG | stat.S_IRWXO
_MAX_FILE_BYTES: Final = 1 << 20


def from_file(path: Path) -> Layer:
    """A TOML file: tables or dotted keys, as the user likes. One that holds a secret must be private to its owner.

    Raises:
        SettingError: it cannot be read or parsed, holds an unknown name, or a secret that others may read.
    """
    layer = from_mapping(_parse(path), f"file {printable(str(path))}")
    secrets = [name for name, (value, _) in layer.items() if _is_secret(name, value)]
    mode = stat.S_IMODE(path.stat().st_mode)
    if secrets and mode & _OTHERS_MAY_READ:
        raise SettingError(
            f"{printable(str(path))} holds a secret ({secrets[0]}) and others may read it (mode {mode:04o}): "
            f"chmod 600 it, or set {by_name()[secrets[0]].environment_name} instead"
        )
    return layer


def from_mapping(values: Mapping[str, Any], origin: str) -> Layer:
    """Nested or dotted names. Raises SettingError for an unknown one."""
    layer: Layer = {}
    for name, value in _flat(values, ""):
        if name not in by_name():
            raise SettingError(f"unknown setting {printable(name)} ({origin}): {nearest(name, list(by_name()))}")
        _put(layer, name, by_name()[name], value, origin)
    return layer


def from_environment(environ: Mapping[str, str]) -> Layer:
    """All `TIERING_...` variables but `TIERING_CONFIG`; an empty one counts as not set.

    Lists may be written as JSON. Raises SettingError for an unknown variable.
    """
    known = by_environment_name()
    layer: Layer = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable not in known:
            hint = nearest(variable, list(known))
            raise SettingError(f"unknown setting {printable(variable)} (environment): {hint}")
        if text:
            setting = known[variable]
            value = _json_list(variable, text) if setting.is_list and text.startswith("[") else text
            _put(layer, variable, setting, value, f"environment {variable}")
    return layer


def _put(layer: Layer, called: str, setting: Setting, value: Any, origin: str) -> None:
    """Raises SettingError if the setting has a value from this place already: a name and its alias, say."""
    if setting.name in layer:
        raise SettingError(f"{called} ({origin}) sets {setting.name} a second time: leave one of them out")
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
