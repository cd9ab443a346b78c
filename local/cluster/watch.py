"""Watch a cluster while it works: the memory that it holds, and secrets where they must not stand.

Looked at are the arguments of every process, every few seconds, and at the end everything that was written: logs of
services, tasks, drivers and executors, Airflow's database (XComs, rendered templates), and files of jobs.
"""

import mmap
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from include.tiering.units import GIB
from local import processes
from local.cluster.host import State

_PERIOD_SECONDS: Final = 3.0
_WHOLE_FILES: Final = ("airflow_admin_password", "airflow_fernet_key")
_PASSWORD: Final = re.compile(r"\b[0-9a-f]{48,}\b")
"""What `secret_files` makes of random bytes; the id of the store's key, which is no secret, is shorter."""
_EXECUTORS: Final = "srv/spark"


def secret_words(state: State) -> set[bytes]:
    """Return every password and key in the cluster's secrets."""
    texts = {file.name: file.read_text() for file in state.secrets.iterdir()}
    words = {word for text in texts.values() for word in _PASSWORD.findall(text)}
    return {word.encode() for word in words | {texts[name].strip() for name in _WHOLE_FILES}}


@dataclass(slots=True)
class Watch:
    """Watches within a `with` block.

    `most_gib` is the most memory in use, in which what processes share counts once; `seen` names the processes whose
    arguments had a secret.
    """

    state: State
    most_gib: float = 0.0
    seen: set[str] = field(default_factory=set)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def files_with_secrets(self) -> list[str]:
        """Return every file with a secret in it, but for the files of secrets themselves."""
        known = re.compile(b"|".join(map(re.escape, sorted(secret_words(self.state)))))
        kept = {self.state.secrets, self.state.settings}
        written = (file for entry in self.state.root.iterdir() if entry not in kept for file in _files(entry))
        executors = (
            file
            for name, process in processes.recorded(self.state.pid_files).items()
            if name.startswith("spark-worker")
            for file in _files(Path(f"/proc/{process.pid}/root/{_EXECUTORS}"))
        )
        return [str(file) for file in (*written, *executors) if _has(file, known)]

    def _look(self) -> None:
        words = secret_words(self.state)
        while not self._ended.wait(_PERIOD_SECONDS):
            running = processes.recorded(self.state.pid_files)
            whole = [*running.values(), *processes.family(running.values(), "")]
            self.most_gib = max(self.most_gib, sum(map(_proportional_bytes, whole)) / GIB)
            self.seen |= {
                f"the arguments of {process.name()}"
                for process in whole
                if any(w in _arguments(process) for w in words)
            }


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    yield from (file for file in place.rglob("*") if file.is_file() and not file.is_symlink())


def _has(file: Path, known: "re.Pattern[bytes]") -> bool:
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return known.search(content) is not None
    except (OSError, ValueError):
        # Empty, or gone meanwhile.
        return False


def _arguments(process: psutil.Process) -> bytes:
    try:
        return "\0".join(process.cmdline()).encode()
    except psutil.Error:
        return b""


def _proportional_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0
