"""Join the layers into one frozen `TieringSettings` that remembers where each value came from."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from include.tiering.errors import SettingError
from include.tiering.settings.catalogue import CONFIG_VARIABLE, all_settings, by_name
from include.tiering.settings.layers import Layer, from_environment, from_file, from_mapping
from include.tiering.settings.model import DEFAULT_ORIGIN, TieringSettings
from include.tiering.settings.rules import default_metadata_url, mask_url

DEFAULT_OVERRIDES_ORIGIN = "Airflow connection"


def load_settings(
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides_origin: str = DEFAULT_OVERRIDES_ORIGIN,
) -> TieringSettings:
    """Default < file < `overrides` < environment.

    `config` is the TOML file, by default the one that `TIERING_CONFIG` names, if any. `overrides` holds nested or
    dotted names. `environ` is the process's environment unless given.

    Raises:
        SettingError: names the setting, its value unless it is secret, its origin and what is accepted.
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
    """`TIERING_...` variables from which another process loads the same values, secrets included.

    For the environment of a child only: never for arguments, files or logs.
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
    shown = "a secret value" if setting.secret else mask_url(repr(value))
    own_rule = "Value error, "
    reason = (
        message.removeprefix(own_rule) if message.startswith(own_rule) else f"{message}; accepted: {setting.accepts}"
    )
    return f"{setting.name} is {shown} ({origin}){inner and ', at ' + inner}: {reason}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
