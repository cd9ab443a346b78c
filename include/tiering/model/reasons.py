"""A reason: a code that is stored and shown in JSON, and a message for people."""

from enum import Enum
from typing import Self, TypedDict


class Reason(Enum):
    """Base of every set of reasons. A reason is declared as ``NOT_LEADER = "not-leader", "not the leader's replica"``.

    The code is part of the interface and never changes; the wording of the message may change at any time. ``str()``
    returns the message.

    Attributes:
        message: text for people.
        retriable: whether waiting may help without a decision of a person. Declared as an optional third value.
    """

    message: str
    retriable: bool

    def __new__(cls, code: str, message: str, retriable: bool = False) -> Self:
        reason = object.__new__(cls)
        reason._value_ = code
        reason.message = message
        reason.retriable = retriable
        return reason

    @classmethod
    def of(cls, code: str) -> Self:
        """Return the reason with this code.

        Raises:
            ValueError: there is none.
        """
        found = next((reason for reason in cls if reason.code == code), None)
        if found is None:
            raise ValueError(f"{cls.__name__} has no code {code!r}")
        return found

    @property
    def code(self) -> str:
        return str(self.value)

    def __str__(self) -> str:
        return self.message


class ReasonMembers(TypedDict):
    """A reason: its code, which stays the same, and a sentence, which may change. Both are null without a reason."""

    reason: str | None
    reason_message: str | None


def reason_members(reason: Reason | None) -> ReasonMembers:
    """Return the members of a JSON document that describe a reason."""
    if reason is None:
        return {"reason": None, "reason_message": None}
    return {"reason": reason.code, "reason_message": reason.message}
