"""A process of its own that copies one made-up segment: raced against another one, or killed on the way.

    python -m tests.doubles.storage_writer URL ENDPOINT SIZE_BYTES PAUSE_AFTER_BYTES

Says `paused` and waits for ever once it has been granted PAUSE_AFTER_BYTES (if not negative); says the name of the
error that ended it, or `copied`. It begins when a line comes in on standard input. ENDPOINT is `-` for none.
"""

import sys
import threading
from dataclasses import dataclass

from include.tiering.errors import TieringError
from include.tiering.quotas.contract import Scope
from include.tiering.remote_storage.location import StoreAccess, open_storage
from tests.doubles.stored_log import some_segment


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


@dataclass
class PausingLimiter:
    pause_after_bytes: int
    granted_bytes: int = 0
    waited_seconds: float = 0.0
    waits_for: Scope | None = None

    def take(self, wanted_bytes: int) -> int:
        if 0 <= self.pause_after_bytes <= self.granted_bytes:
            say("paused")
            threading.Event().wait()
        self.granted_bytes += wanted_bytes
        return wanted_bytes


def main(url: str, endpoint: str, size_bytes: int, pause_after_bytes: int) -> str:
    storage = open_storage(url, StoreAccess(None if endpoint == "-" else endpoint))
    metadata, data = some_segment(size_bytes)
    say("ready")
    sys.stdin.readline()
    try:
        storage.copy_log_segment(metadata, data, limiter=PausingLimiter(pause_after_bytes), on_sent=lambda _: None)
    except TieringError as error:
        return type(error).__name__
    return "copied"


if __name__ == "__main__":
    say(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
