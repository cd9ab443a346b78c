"""A process that runs `./tiering` and, if told to, dies by SIGKILL at a call of one of its methods.

    command_worker CONFIG --command TEXT [--kill before|within|after --call NAME --number N]

TEXT is the command with its arguments. NAME is a key of `CALLS`. With `after` the call was made, and its result was not
used; `within` is for `put` alone: the first bytes of the object are written then. Counted are the calls of the whole
process, from 1 on.
"""

import argparse
import importlib
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from include.tiering.kafka.protocol.fetch_requests import Fetch
from tests.doubles.dying import die

_CONNECTION: Final = "include.tiering.kafka.protocol.connections:BrokerConnection"
_RANGES: Final = "include.tiering.segments.sql_fetched_ranges:SqlFetchedRanges"
_METADATA: Final = "include.tiering.segments.sql:SqlRemoteLogMetadata"
_WORK: Final = "include.tiering.runs.store:SqlWorkStore"
_STORE: Final = "include.tiering.remote_storage.file.store:FileObjectStore"

CALLS: Final = {
    "fetch": (_CONNECTION, "send"),
    "record": (_RANGES, "record"),
    "save_plan": (_WORK, "save_plan"),
    "claim": (_WORK, "claim"),
    "add_segment": (_METADATA, "add_segment"),
    "put": (_STORE, "put"),
    "update_segment": (_METADATA, "update_segment"),
    "advance_deletion": (_METADATA, "advance_deletion"),
    "delete": (_STORE, "delete"),
    "record_outcome": (_WORK, "record_outcome"),
    "release": (_WORK, "release"),
}


def _kill_at(when: str, call: str, number: int) -> None:
    """From now on the process dies at this call."""
    place, method = CALLS[call]
    module, _, name = place.partition(":")
    owner = getattr(importlib.import_module(module), name)
    called: Callable[..., Any] = getattr(owner, method)
    lock, count = threading.Lock(), 0

    @wraps(called)
    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal count
        if call == "fetch" and not isinstance(arguments[1], Fetch):
            return called(*arguments, **more)
        with lock:
            count += 1
            is_it = count == number
        if is_it and when == "before":
            die()
        if is_it and when == "within":
            more["on_sent"] = lambda _bytes: die()
        answer = called(*arguments, **more)
        if is_it:
            die()
        return answer

    setattr(owner, method, counted)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--command")
    parser.add_argument("--kill", choices=("before", "within", "after"))
    parser.add_argument("--call", choices=CALLS)
    parser.add_argument("--number", type=int, default=1)
    found = parser.parse_args()
    if found.kill:
        _kill_at(found.kill, found.call, found.number)
    # The command line takes a moment to import; workers that run no command do without it.
    from include.tiering.cli.app import cli

    cli(["--config", found.config, *found.command.split()])
