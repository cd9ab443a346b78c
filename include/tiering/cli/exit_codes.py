"""The exit codes of commands."""

from enum import IntEnum

from include.tiering.errors import SettingError, TieringError


class ExitCode(IntEnum):
    """Why a command ended.

    DONE: it succeeded, without findings. FINDINGS: it has findings, was refused, or failed in a way that a repetition
    does not change. USAGE: an argument or a setting is wrong. RETRY: a repetition may succeed. INTERNAL: a bug.
    """

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    RETRY = 3
    INTERNAL = 70


def code_of(error: TieringError) -> ExitCode:
    if isinstance(error, SettingError):
        return ExitCode.USAGE
    return ExitCode.RETRY if error.retriable else ExitCode.FINDINGS
