"""The CPU priority of bulk work that runs beside a broker.

Linux keeps a niceness for each thread, and a new thread has that of the thread that starts it. It decides between
threads of one session or control group; between control groups their weights do.
"""

import os
import threading
from typing import Final

LOWEST_PRIORITY: Final = 19


def give_way() -> None:
    """Let all threads of ordinary priority go before this thread, and before those that it starts, for good."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
