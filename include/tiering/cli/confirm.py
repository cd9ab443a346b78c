"""Whether a person agrees: what deletes or truncates asks first, and without a terminal needs it said in advance."""

import sys
from typing import Annotated

import typer

Approve = Annotated[bool, typer.Option("--approve", help="Agree in advance to what this command is about to do.")]


def is_asked_on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def refusal_of(question: str) -> str | None:
    """Why a command that was not agreed to in advance does nothing, None if a person agrees now."""
    if not is_asked_on_a_terminal():
        return "without a terminal it needs --approve"
    return None if agrees(question) else "not confirmed"


def agrees(question: str) -> bool:
    """Ask on standard error; anything but a yes is a no."""
    return typer.confirm(question, default=False, err=True)
