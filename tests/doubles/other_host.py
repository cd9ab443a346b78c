"""Another host, on this machine: a network, a host name and mounts of its own, reached over one cable.

A process there sees a log dir where its host would have it, and nothing else of the test: the directories of temporary
files are empty, and this machine's loopback is not its own. Servers of the test are reached by relays on this end of
the cable, as servers on other hosts are. All of it goes with the process that holds the namespaces.
"""

import os
import random
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.patience import PATIENCE_SECONDS, eventually

Connect = Callable[[], socket.socket]
_NEEDED: Final = ("ip", "nsenter", "unshare")
_BLOCK_BYTES: Final = 65_536


@dataclass(frozen=True)
class OtherHost:
    """A host whose namespaces the process `pid` holds; `near` is this machine's address as it is seen from there."""

    pid: int
    name: str
    near: str

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._enter, *command],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    @property
    def _enter(self) -> list[str]:
        return ["nsenter", "--target", str(self.pid), "--mount", "--net", "--uts", "--"]


@contextmanager
def other_host_or_skip(name: str, log_dir: Path, seen_as: Path, hidden: Path) -> Iterator[OtherHost]:
    """Start a host that has `log_dir` at `seen_as`, a path below `hidden`, and nothing else of `hidden`."""
    missing = [program for program in _NEEDED if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a network of its own needs root and {', '.join(missing or _NEEDED)}")
    mounts = [
        f"mount --bind {shlex.quote(str(log_dir))} /mnt",
        f"mount -t tmpfs none {shlex.quote(str(hidden))}",
        f"mkdir -p {shlex.quote(str(seen_as))}",
        f"mount --move /mnt {shlex.quote(str(seen_as))}",
        *([] if hidden.is_relative_to(tempfile.gettempdir()) else [f"mount -t tmpfs none {tempfile.gettempdir()}"]),
        f"hostname {name}",
        "ip link set lo up",
    ]
    script = " && ".join([*mounts, "echo ready && exec sleep infinity"])
    command = ["unshare", "--net", "--mount", "--uts", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as held:
        try:
            assert held.stdout is not None
            assert held.stderr is not None
            if held.stdout.readline() != "ready\n":
                pytest.skip(f"this system gives a process no network and mounts of its own: {held.stderr.read()}")
            near, far = _cable(held.pid)
            host = OtherHost(held.pid, name, near)
            answers = ["ping", "-c1", "-W1", near] if shutil.which("ping") else ["ip", "route", "get", near]
            eventually(lambda: host.run(answers, os.environ).returncode == 0, f"{far} reaches {near}")
            yield host
        finally:
            held.kill()


def _cable(pid: int) -> tuple[str, str]:
    """Lay a cable between this machine and the host that the process holds; return the addresses of its ends."""
    third, fourth = random.SystemRandom().randrange(256), 4 * random.SystemRandom().randrange(64)
    # Addresses for benchmarks of networks, RFC 2544: no host of the outside has one.
    near, far = f"198.18.{third}.{fourth + 1}", f"198.18.{third}.{fourth + 2}"
    here = f"tt{pid}"
    inside = ["nsenter", "--target", str(pid), "--net", "--"]
    for command in (
        ["ip", "link", "add", here, "type", "veth", "peer", "name", "far", "netns", str(pid)],
        ["ip", "address", "add", f"{near}/30", "dev", here],
        ["ip", "link", "set", here, "up"],
        [*inside, "ip", "address", "add", f"{far}/30", "dev", "far"],
        [*inside, "ip", "link", "set", "far", "up"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return near, far


@contextmanager
def relay(address: str, connect: Connect) -> Iterator[int]:
    """Listen on a free port of the address, and pass each connection on to a server; yields the port."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((address, 0)))
        open_sockets: list[socket.socket] = []
        threads: list[threading.Thread] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    asked, _ = listener.accept()
                    answering = connect()
                    open_sockets.extend((asked, answering))
                    for source, target in ((asked, answering), (answering, asked)):
                        threads.append(threading.Thread(target=_pass_on, args=(source, target)))
                        threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            for each in (listener, *open_sockets):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()
            for each in open_sockets:
                each.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(_BLOCK_BYTES):
            target.sendall(block)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
