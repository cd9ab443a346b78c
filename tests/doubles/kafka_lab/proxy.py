"""A proxy before a real broker: it passes everything on, but for answers to Fetch requests, which a test may change.

A broker that advertises the proxy's port is reached through it by every client that asked for its address.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from include.tiering.broker_process.broker_process import free_ports

Answer = Callable[[bytes], bytes | None]
"""From the records of an answer to those that are sent on; None: the connection ends in the middle of them."""

_FETCH: Final = 1
_RECORDS_AT: Final = 68
"""Where the length of the records is in an answer of version 15 to 18 to a request for one partition, without tags."""


@dataclass
class FetchProxy:
    """`target` is the broker's port; nothing is answered before it is set. `answer` changes what is fetched."""

    port: int
    target: int | None = None
    answer: Answer = lambda records: records
    answers: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _serve(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            if self.target is None:
                return
            with socket.create_connection(("127.0.0.1", self.target)) as broker:
                fetches: set[bytes] = set()
                threading.Thread(target=_requests, args=(client, broker, fetches), daemon=True).start()
                with broker.makefile("rb") as reader:
                    while frame := _frame(reader.read):
                        if frame[4:8] in fetches:
                            fetches.discard(frame[4:8])
                            changed = self._changed(frame)
                            client.sendall(changed if changed is not None else frame[: len(frame) // 2])
                            if changed is None:
                                break
                        else:
                            client.sendall(frame)
                for side in (client, broker):
                    side.shutdown(socket.SHUT_RDWR)

    def _changed(self, frame: bytes) -> bytes | None:
        """The frame with other records; an answer without records stays as it is."""
        length, at = _uvarint(frame, 4 + _RECORDS_AT)
        if length < 2:
            return frame
        records, rest = frame[at : at + length - 1], frame[at + length - 1 :]
        with self._lock:
            self.answers += 1
            changed = self.answer(records)
        if changed is None:
            return None
        message = frame[4 : 4 + _RECORDS_AT] + _as_uvarint(len(changed) + 1) + changed + rest
        return len(message).to_bytes(4) + message


@contextmanager
def fetch_proxy() -> Iterator[FetchProxy]:
    """Listens on a free port for as long as the block lasts."""
    (port,) = free_ports(1)
    proxy = FetchProxy(port)
    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=proxy._serve, args=(server,), daemon=True)
        thread.start()
        yield proxy
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _requests(client: socket.socket, broker: socket.socket, fetches: set[bytes]) -> None:
    """Pass requests on, and remember the correlation ids of those that fetch."""
    with suppress(OSError), client.makefile("rb") as reader:
        while frame := _frame(reader.read):
            if int.from_bytes(frame[4:6]) == _FETCH:
                fetches.add(frame[8:12])
            broker.sendall(frame)
        broker.shutdown(socket.SHUT_RDWR)


def _frame(read: Callable[[int], bytes]) -> bytes:
    """A whole request or answer with its size; empty at the end of the connection."""
    size = read(4)
    message = read(int.from_bytes(size)) if len(size) == 4 else b""
    return size + message if size and len(message) == int.from_bytes(size) else b""


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends; 0 beyond the end of the data."""
    value, shift = 0, 0
    while at < len(data):
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            break
    return value, at


def _as_uvarint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
