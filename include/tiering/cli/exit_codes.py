"""What the exit code of a command says."""

from enum import IntEnum

from include.tiering.errors import SettingError, TieringError


class ExitCode(IntEnum):
    """DONE and nothing to say; FINDINGS, or refused; USAGE or a setting; RETRY is worth it; INTERNAL is a bug."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    RETRY = 3
    INTERNAL = 70


def code_of(error: TieringError) -> ExitCode:
    if isinstance(error, SettingError):
        return ExitCode.USAGE
    return ExitCode.RETRY if error.retriable else ExitCode.FINDINGS
