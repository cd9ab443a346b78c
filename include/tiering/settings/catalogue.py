"""The table of all settings, derived from `model`, and dynamic configs over loaded settings.

The table has names, environment names, types in words, and the nearest name. Dynamic configs win over every other
place; where they are kept is not known here.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from include.tiering.errors import SettingError, printable
from include.tiering.settings.fields import DynamicSection, Loosens, Section, mask_url
from include.tiering.settings.model import LogDir, TieringSettings

ENVIRONMENT_PREFIX: Final = "TIERING_"
CONFIG_VARIABLE: Final = "TIERING_CONFIG"
_OWN_PREFIX: Final = "tiering."


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: `path` leads to the field inside TieringSettings, `accepts` is the type and its bounds in words."""

    name: str
    path: tuple[str, ...]
    accepts: str
    unit: str | None
    default: str
    sentence: str
    dynamic: bool
    secret: bool
    is_list: bool
    aliases: tuple[str, ...] = ()
    loosens: Loosens | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, then the other names under which it may be set."""
        return (self.name, *self.aliases)

    @property
    def environment_name(self) -> str:
        """`remote_storage.url` -> `TIERING_REMOTE_STORAGE__URL`; a leading `tiering.` is not repeated."""
        return _environment_name(self.name)

    def value(self, settings: TieringSettings) -> Any:
        found: Any = settings
        for attribute in self.path:
            found = getattr(found, attribute)
        return found

    def text(self, settings: TieringSettings) -> str:
        """The value of a setting that is neither secret nor list, as one would write it."""
        return _value_text(self.value(settings))

    def shown(self, settings: TieringSettings) -> Any:
        """The value as JSON may show it: secrets masked."""
        return _shown(self.value(settings))


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting in the order of declaration."""
    rows: list[Setting] = []
    for section_name, section in TieringSettings.model_fields.items():
        model = section.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            rows.extend(_row(model, section_name, name, field) for name, field in model.model_fields.items())
        else:
            rows.append(_setting(section_name, (section_name,), section))
    return tuple(rows)


@cache
def by_name() -> dict[str, Setting]:
    """Aliases lead to the same setting."""
    return {name: setting for setting in all_settings() for name in setting.names}


def current_name(name: str) -> str:
    """The name that a setting has in this version, for any of its names; another text is returned as it is."""
    setting = by_name().get(name)
    return name if setting is None else setting.name


def former_names(name: str) -> tuple[str, ...]:
    """The other names under which the setting of this current name may be set, or was stored; empty without any."""
    setting = by_name().get(name)
    return () if setting is None else setting.aliases


@cache
def by_environment_name() -> dict[str, Setting]:
    return {_environment_name(name): setting for name, setting in by_name().items()}


def nearest(wrong: str, names: list[str]) -> str:
    """The known name that looks most like `wrong`, or of all names if none does, as a sentence."""
    found = difflib.get_close_matches(wrong, names, n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else f"known are {', '.join(sorted(names))}"


def _environment_name(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.removeprefix(_OWN_PREFIX).replace(".", "__").upper()


def _row(model: type[BaseModel], section_name: str, field_name: str, field: FieldInfo) -> Setting:
    if issubclass(model, DynamicSection):
        name = f"{model.prefix}.{field_name.replace('_', '.')}"
    else:
        name = f"{section_name}.{field_name}"
    return _setting(name, (section_name, field_name), field)


def _setting(name: str, path: tuple[str, ...], field: FieldInfo) -> Setting:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    unit, aliases = extra.get("unit"), extra.get("aliases")
    return Setting(
        name=name,
        path=path,
        accepts=str(extra.get("accepts") or _accepts(name, field)),
        unit=unit if isinstance(unit, str) else None,
        default=str(extra.get("default_text") or _value_text(field.default)),
        sentence=field.description or "",
        dynamic=bool(extra.get("dynamic")),
        secret=_plain_type(field.annotation) is SecretStr,
        is_list=get_origin(_plain_type(field.annotation)) is tuple,
        aliases=tuple(map(str, aliases)) if isinstance(aliases, list) else (),
        loosens=Loosens(str(loosens)) if (loosens := extra.get("loosens")) else None,
    )


def _accepts(name: str, field: FieldInfo) -> str:
    kind = _plain_type(field.annotation)
    if name == "log_dirs":
        return "list of {" + ", ".join(LogDir.model_fields) + "}"
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "list of text"
    if kind is bool:
        return "true or false"
    words = {int: "integer", float: "number"}.get(kind, "text")
    for bound in field.metadata:
        if isinstance(bound, Ge):
            words += f", at least {bound.ge}"
        elif isinstance(bound, Le):
            words += f", at most {bound.le}"
        elif isinstance(bound, MinLen):
            words += ", not empty"
    return words


def _plain_type(annotation: Any) -> Any:
    """The type inside `Annotated[...]` and `... | None`."""
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return _plain_type(next(kind for kind in get_args(annotation) if kind is not type(None)))
    return annotation


def _value_text(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return "[]" if value == () else str(value)


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        masked = mask_url(value.get_secret_value())
        return masked if "://" in masked else "***"
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    return [_shown(item) for item in value] if isinstance(value, tuple) else value


DYNAMIC_ORIGIN: Final = "dynamic config"
_MOST_SHOWN: Final = 100


@cache
def dynamic_settings() -> tuple[Setting, ...]:
    """The settings that may be changed while jobs run."""
    return tuple(setting for setting in all_settings() if setting.dynamic)


def canonical_value(setting: Setting, text: str) -> str:
    """`text` as it is stored: ``" 007"`` -> ``"7"``, ``"True"`` -> ``"true"``.

    Raises:
        SettingError: with the value and what is accepted.
    """
    return setting.text(_with_section(TieringSettings(), setting, {setting: text}))


def with_dynamic(
    settings: TieringSettings, values: Mapping[str, str], *, origin: str = DYNAMIC_ORIGIN
) -> TieringSettings:
    """The settings with `values`, by name, in place of what they had. What names no dynamic setting is passed over.

    Raises:
        SettingError: a value that this version does not accept.
    """
    known = {by_name()[name]: text for name, text in values.items() if name in by_name() and by_name()[name].dynamic}
    for setting in known:
        settings = _with_section(settings, setting, known)
    return settings.with_origins({setting.name: origin for setting in known})


def _with_section(settings: TieringSettings, setting: Setting, texts: Mapping[Setting, str]) -> TieringSettings:
    """The section of `setting` made anew, checked, with all of `texts` that belong to it."""
    section_name, _ = setting.path
    section: Section = getattr(settings, section_name)
    values: dict[str, Any] = section.model_dump()
    values |= {one.path[1]: text.strip() for one, text in texts.items() if one.path[0] == section_name}
    try:
        made = type(section).model_validate(values)
    except ValidationError as error:
        raise SettingError(_sentence(error, section_name, texts)) from None
    return settings.model_copy(update={section_name: made})


def _sentence(error: ValidationError, section_name: str, texts: Mapping[Setting, str]) -> str:
    field = error.errors()[0]["loc"][0]
    setting = next(one for one in texts if one.path == (section_name, field))
    unit = f" ({setting.unit})" if setting.unit else ""
    return f"{setting.name} is {printable(texts[setting][:_MOST_SHOWN])!r}: accepted: {setting.accepts}{unit}"
