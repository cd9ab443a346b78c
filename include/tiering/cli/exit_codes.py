"""The exit codes of commands."""

from enum import IntEnum

from include.tiering.errors import SettingError, TieringError


class ExitCode(IntEnum):
    """DONE: no findings. FINDINGS: findings, or refused. USAGE: usage or setting. RETRY: may pass. INTERNAL: a bug."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    RETRY = 3
    INTERNAL = 70


def code_of(error: TieringError) -> ExitCode:
    if isinstance(error, SettingError):
        return ExitCode.USAGE
    return ExitCode.RETRY if error.retriable else ExitCode.FINDINGS
