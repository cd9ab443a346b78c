"""A store that is far away: a proxy on loopback that delays every byte and bounds the rate of each connection.

    python -m benchmarks.far_store UPSTREAM_PORT [--delay-ms 15] [--connection-mb-per-second 85]

It prints the port on which it listens. Each direction of each connection is a pipe of its own: a byte that arrives is
passed on `delay_ms` later, and no faster than the connection's rate. A pipe holds at most what a window of that rate
and a round trip would hold, so a sender feels the distance as it does on a real network: a new connection costs a round
trip before its first answer, and an idle one begins at once. A lost packet, a slow start and a shared uplink are not
modelled.
"""

import argparse
import asyncio
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_BLOCK_BYTES: Final = 256 * 1024
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the store is. `delay_seconds` is one way; the rate counts for each direction of a connection."""

    delay_seconds: float
    bytes_per_second: float

    @property
    def window_bytes(self) -> int:
        """What is under way at most: the rate for one round trip, and at least two blocks."""
        return max(2 * _BLOCK_BYTES, int(self.bytes_per_second * 2 * self.delay_seconds))


class Pipe:
    """One direction of one connection."""

    def __init__(self, distance: Distance) -> None:
        self._distance = distance
        self._under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    async def carry(self, source: socket.socket, target: socket.socket) -> None:
        """Pass bytes on until the source ends; then end the target's side, too."""
        delivering = asyncio.create_task(self._deliver(target))
        try:
            await self._collect(source)
            await delivering
        except OSError:
            delivering.cancel()
            for each in (source, target):
                each.close()

    async def _collect(self, source: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        free_at = 0.0
        while True:
            await self._room.wait()
            data = await loop.sock_recv(source, _BLOCK_BYTES)
            free_at = max(free_at, loop.time()) + len(data) / self._distance.bytes_per_second
            self._held_bytes += len(data)
            if self._held_bytes >= self._distance.window_bytes:
                self._room.clear()
            self._under_way.put_nowait((free_at + self._distance.delay_seconds, data))
            if not data:
                return

    async def _deliver(self, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._under_way.get()
            if (seconds := due - loop.time()) > 0:
                await asyncio.sleep(seconds)
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(target, data)
            self._held_bytes -= len(data)
            if self._held_bytes < self._distance.window_bytes:
                self._room.set()


async def serve(upstream_port: int, distance: Distance, *, backlog: int = 1024) -> None:
    """Forward connections to a port of this host until the process is ended."""
    loop = asyncio.get_running_loop()
    listening = socket.socket()
    listening.bind((_LOOPBACK, 0))
    listening.listen(backlog)
    listening.setblocking(False)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    connections: set[asyncio.Task[None]] = set()
    while True:
        near, _ = await loop.sock_accept(listening)
        task = asyncio.create_task(_connection(near, upstream_port, distance))
        connections.add(task)
        task.add_done_callback(connections.discard)


async def _connection(near: socket.socket, upstream_port: int, distance: Distance) -> None:
    far = socket.socket()
    try:
        for each in (near, far):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(far, (_LOOPBACK, upstream_port))
        await asyncio.gather(Pipe(distance).carry(near, far), Pipe(distance).carry(far, near))
    except OSError:
        return
    finally:
        near.close()
        far.close()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Forward to an S3 server on loopback as if it were far away.")
    parser.add_argument("upstream_port", type=int)
    parser.add_argument("--delay-ms", type=float, default=15.0, help="each way")
    parser.add_argument("--connection-mb-per-second", type=float, default=85.0, help="each direction")
    options = parser.parse_args(arguments)
    distance = Distance(options.delay_ms / 1000, options.connection_mb_per_second * 1_000_000)
    asyncio.run(serve(options.upstream_port, distance))


if __name__ == "__main__":
    main(sys.argv[1:])
