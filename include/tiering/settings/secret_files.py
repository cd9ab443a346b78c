"""Files with secrets: only their owner may have access."""

import stat
from typing import Final

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def open_to_others(file: str, mode: int) -> str:
    """Return why a file with a secret is refused; empty if its group and others have no permission.

    Args:
        file: what the file is, such as `/etc/key.pem is a private key`, for the message.
        mode: the file's `st_mode`.
    """
    mode = stat.S_IMODE(mode)
    return f"{file} and others may read or change it (mode {mode:04o}): chmod 600 it" if mode & _OTHERS else ""
