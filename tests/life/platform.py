"""A platform over the brokers' log directories, used as a person uses it: by `./tiering` and its exit codes."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.doubles.source_tree import ROOT
from tests.life.cluster import LifeCluster

Document = dict[str, Any]
WHY: Final = "life: looked at it, and decided so"
_LEASE_MS: Final = 8_000
_EXIT_CODES: Final = (0, 1, 3)


@dataclass(frozen=True, slots=True)
class Said:
    """What one command answered. `document` is empty where it gave none: then `text` has its sentence."""

    command: str
    code: int
    document: Document
    text: str

    @property
    def is_fault(self) -> bool:
        """Nobody may see that, whatever happens to the cluster."""
        return self.code not in _EXIT_CODES or "Traceback" in self.text


class Warm:
    """Begins commands, one at a time, each as a process of its own (`warm_commands`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.life.warm_commands"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """Its input ends, and so does it."""
        with self._process:
            pass

    def begin(self, arguments: Sequence[str], stdout: Path, stderr: Path) -> int:
        """The process id of the command."""
        assert self._process.stdin is not None
        asked = {"arguments": arguments, "stdout": str(stdout), "stderr": str(stderr)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._number()

    def ended(self) -> int:
        """Waits for its exit code."""
        return self._number()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@dataclass(frozen=True)
class Running:
    """A command that was begun."""

    warm: Warm
    command: str
    pid: int
    stdout: Path
    stderr: Path

    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """kill -9, by its own process id; nothing if it has ended."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def ended(self) -> Said:
        """Waits for it."""
        code = self.warm.ended()
        out, err = self.stdout.read_text(), self.stderr.read_text()
        try:
            document = json.loads(out)
        except ValueError:
            document = {}
        return Said(self.command, code, document, err if document else out + err)


@dataclass
class Platform:
    """`name` says where topics and offsets come from: `brokers` or `log dirs`. What lies in `directory` is its own: the
    database, the store, what was fetched. `nodes` are the brokers whose directories are named."""

    name: str
    directory: Path
    cluster: LifeCluster
    include: Sequence[str]
    warm: Warm
    nodes: list[int] = field(default_factory=lambda: [1, 2, 3])
    decisions: list[Document] = field(default_factory=list)
    said: dict[str, set[int]] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def database(self) -> Path:
        return self.directory / "metadata.sqlite"

    def open(self) -> None:
        """Sets it up, by `./tiering migrate` as it is."""
        self.directory.mkdir(parents=True)
        command = [str(ROOT / "tiering"), "--config", str(self._config()), "migrate"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def begin(self, *arguments: str) -> Running:
        """Only one at a time."""
        out, err = self.directory / "stdout", self.directory / "stderr"
        pid = self.warm.begin(["--config", str(self._config()), *arguments, "--json"], out, err)
        return Running(self.warm, " ".join(arguments), pid, out, err)

    def fetches_from(self, broker: int) -> bool:
        """Whether it reads this leader over the network, because its directory is not named."""
        return self.name == "brokers" and broker not in self.nodes

    def run(self, *arguments: str) -> Said:
        said = self.begin(*arguments).ended()
        self.said.setdefault(arguments[0], set()).add(said.code)
        return said

    def recorded_skips(self, topic_id: str, partition: int) -> list[tuple[int, int]]:
        """Offsets that somebody decided to go without. `skip` shows them only while the cluster has the topic."""
        query = "SELECT first_offset, last_offset FROM skipped_offsets WHERE topic_id = ? AND partition = ?"
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query, (topic_id, partition)).fetchall()

    def decide(self, held: Iterable[Document]) -> list[Document]:
        """What a person does about partitions that wait for one. Returns what was decided now."""
        decided = []
        for one in held:
            where = (one["topic"], "--partition", str(one["partition"]), "--reason", WHY)
            if one["follow_from"] is not None:
                arguments = ["skip", *where, "--follow-source-from", str(one["follow_from"]), "--approve"]
            elif _can_be_skipped(one["reason"]):
                arguments = ["skip", *where, "--approve"]
            else:
                continue
            said = self.run(*arguments)
            document = {**said.document, "code": said.code, "kind": _kind(one), "text": said.text}
            self.decisions.append(document)
            decided.append(document)
        return decided

    def follows(self, topic_id: str, partition: int) -> list[tuple[int, int]]:
        """(history, its first offset) of what was decided about divergences, ascending."""
        return sorted(
            (one["decided"]["history"], one["from_offset"])
            for one in self.decisions
            if one.get("decided") and (one["topic_id"], one["partition"]) == (topic_id, partition)
        )

    def back_up(self, to: Path) -> None:
        source, target = sqlite3.connect(self.database), sqlite3.connect(to)
        try:
            source.backup(target)
        finally:
            source.close()
            target.close()

    def put_back(self, backup: Path) -> None:
        """As a restore does: the file is the one of that time, and no journal of now beside it."""
        for left in self.directory.glob("metadata.sqlite*"):
            left.unlink()
        shutil.copy(backup, self.database)

    def _config(self) -> Path:
        entries = "".join(
            f'  {{broker_id = {node}, path = "{self.cluster.directories[node]}"}},\n' for node in self.nodes
        )
        servers = f'cluster.bootstrap_servers = "{self.cluster.bootstrap}"\n' if self.name == "brokers" else ""
        path = self.directory / "tiering.toml"
        path.write_text(
            f"""{servers}log_dirs = [\n{entries}]
topics.include = {json.dumps(list(self.include))}
metadata.url = "sqlite:///{self.database}"
remote_storage.url = "{self.store.as_uri()}"
tiering.copier.lease.ms = {_LEASE_MS}
"""
        )
        return path


@contextmanager
def warm_commands() -> Iterator[tuple[Warm, Warm]]:
    """For two platforms at once. They end with the block."""
    warm = Warm(), Warm()
    try:
        yield warm
    finally:
        for one in warm:
            one.close()


def two_platforms(
    directory: Path, cluster: LifeCluster, include: Sequence[str], warm: tuple[Warm, Warm]
) -> list[Platform]:
    """One that asks the brokers, one that knows their directories alone; both are set up."""
    found = [
        Platform(name, directory / name.replace(" ", "-"), cluster, include, one)
        for name, one in zip(("brokers", "log dirs"), warm, strict=True)
    ]
    with ThreadPoolExecutor(max_workers=len(found)) as pool:
        for done in [pool.submit(platform.open) for platform in found]:
            done.result()
    return found


def _can_be_skipped(reason: str) -> bool:
    return reason in ("hole", "compacted", "lost")


def _kind(held: Document) -> str:
    return "follow" if held["follow_from"] is not None else "skip"
