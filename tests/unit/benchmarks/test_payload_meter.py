"""Payload as it passes: the bodies of PUT requests, however their bytes are cut into blocks."""

import itertools
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.payload_meter import PayloadCounter, payload_meter
from tests.doubles.patience import eventually

REQUESTS = (
    b"GET /bucket/key HTTP/1.1\r\nHost: h\r\n\r\n"
    b"PUT /bucket/key HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n0123456\r\n\r"
    b"PUT /bucket/empty HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
    b"POST /bucket?delete HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde"
    b"PUT /bucket/key HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz"
)


@given(st.lists(st.integers(0, len(REQUESTS)), max_size=20))
def test_only_bodies_of_puts_count_wherever_blocks_end(cuts: list[int]) -> None:
    counter, ends = PayloadCounter(), [0, *sorted(cuts), len(REQUESTS)]
    assert sum(counter.count(REQUESTS[begin:end]) for begin, end in itertools.pairwise(ends)) == 13


def test_a_body_in_chunks_is_refused() -> None:
    with pytest.raises(ValueError, match="in chunks"):
        PayloadCounter().count(b"PUT /key HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")


def test_bytes_pass_both_ways_and_the_payload_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        with payload_meter(upstream.getsockname()[1]) as (port, arrivals):
            with socket.create_connection(("127.0.0.1", port)) as client:
                served, _ = upstream.accept()
                with served:
                    client.sendall(REQUESTS)
                    client.shutdown(socket.SHUT_WR)
                    received = b"".join(iter(lambda: served.recv(100), b""))
                    served.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                assert client.recv(100) == b"HTTP/1.1 200 OK\r\n\r\n"
            assert received == REQUESTS
            assert arrivals.trace().total_bytes == 13
        eventually(lambda: not _proxy_threads(), "its threads end")


def _proxy_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
