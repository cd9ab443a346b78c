"""Dynamic configs over loaded settings: they win over every other place. Where they are kept is not known here."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from include.tiering.errors import SettingError, printable
from include.tiering.settings.catalogue import Setting, all_settings, by_name
from include.tiering.settings.model import TieringSettings
from include.tiering.settings.section import Section

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
