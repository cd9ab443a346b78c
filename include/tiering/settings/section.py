"""What a group of settings is: frozen, and without room for unknown names."""

from enum import StrEnum
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

MOST_INT: Final = 2**31 - 1
MOST_LONG: Final = 2**63 - 1
"""Kafka's largest values of the types `int` and `long`, inclusive."""


class Loosens(StrEnum):
    """In which direction a limit of deletions is loosened: what is deleted sooner, or more of it without a question."""

    UPWARDS = "upwards"
    DOWNWARDS = "downwards"


class Section(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class DynamicSection(Section):
    """Settings that carry a name in Kafka's style, below `prefix`: Kafka's own name where the meaning is Kafka's."""

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
) -> Any:
    """A field of a `DynamicSection`: a number between inclusive bounds, a switch, or text with a validator of its own.

    `accepts` says in words what type and bounds do not; `aliases` are other full names under which the user may set it.
    `loosens` marks a limit of deletions: where approvers are set, a form takes a looser value from them alone.
    """
    extra: dict[str, Any] = {"unit": unit, "dynamic": dynamic, "accepts": accepts, "aliases": list(aliases)}
    extra |= {"loosens": loosens}
    bounds: dict[str, Any] = {} if isinstance(default, (bool, str)) else {"ge": at_least, "le": at_most}
    return Field(default=default, description=sentence, json_schema_extra=extra, **bounds)
