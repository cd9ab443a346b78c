"""An S3 server for benchmarks: computes every checksum it is told, refuses wrong ones, keeps sizes and checksums alone.

    python -m benchmarks.s3_sink        says its port, serves until its standard input ends

Speaks as much S3 as uploaders need: PutObject and multipart (plain or aws-chunked bodies), conditional writes, Head,
an empty list, Delete, and Get, whole or a range, of what is no larger than 4 KiB. Verified: x-amz-checksum-crc32c and
-crc32, in a header or a trailer, of objects and parts, and the CRC-32C of the whole at Complete, combined from those of
the parts. Not verified: signatures, MD5, SHA-256. ETags are no MD5, so nobody compares them.

Payload is counted as it comes in, by this host's monotonic clock: GET /.arrivals answers the trace (quota_trace.py),
DELETE /.arrivals begins a new one.
"""

import json
import socketserver
import sys
import threading
import time
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Final
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import numpy as np

from benchmarks.quota_trace import BUCKET_NS, Trace
from include.tiering.formats.record_batch import append_crc32c, extend_crc32c
from include.tiering.units import KIB, MIB

_BLOCK_BYTES: Final = MIB
_SMALL_BYTES: Final = 4 * KIB
_REASONS: Final = {
    200: "OK",
    204: "No Content",
    206: "Partial Content",
    400: "Bad Request",
    404: "Not Found",
    412: "Precondition Failed",
}
_ARRIVALS: Final = "/.arrivals"
_XML: Final = '<?xml version="1.0" encoding="UTF-8"?>'
_XMLNS: Final = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@dataclass
class Received:
    """A body as it came: its size and the CRC-32C of all of it; `content` of a small one, to be read back."""

    size_bytes: int = 0
    crc32c: int = 0
    refused: bool = False
    content: bytes = b""


class Arrivals:
    """Counts bytes by the time at which they came."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}

    def add(self, size_bytes: int) -> None:
        bucket = self._clock_ns() // BUCKET_NS
        with self._lock:
            self._counts[bucket] = self._counts.get(bucket, 0) + size_bytes

    def reset(self) -> None:
        with self._lock:
            self._counts = {}

    def trace(self) -> Trace:
        """From the first byte to the last."""
        with self._lock:
            counts = dict(self._counts)
        first, last = min(counts, default=0), max(counts, default=-1)
        return Trace(first, np.array([counts.get(bucket, 0) for bucket in range(first, last + 1)], dtype=np.int64))


@dataclass
class State:
    """What all connections share."""

    objects: dict[str, Received] = field(default_factory=dict)
    uploads: dict[str, dict[int, Received]] = field(default_factory=dict)
    arrivals: Arrivals = field(default_factory=Arrivals)
    requests: int = 0
    payload_bytes: int = 0
    verified: int = 0
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64
    state: State


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    rbufsize = 64 * KIB
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._block = memoryview(bytearray(_BLOCK_BYTES))

    def handle(self) -> None:
        try:
            while line := self.rfile.readline(8192):
                method, target, _ = line.decode("latin-1").split(" ", 2)
                headers = self._headers()
                if headers.get("expect", "").lower() == "100-continue":
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._answer(method, target, headers)
        except (ConnectionError, ValueError):
            return

    def _headers(self) -> dict[str, str]:
        headers = {}
        while (line := self.rfile.readline(65536)) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return headers

    def _answer(self, method: str, target: str, headers: dict[str, str]) -> None:
        parts = urlsplit(target)
        if parts.path == _ARRIVALS:
            self._answer_arrivals(method)
            return
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        state = self.server.state
        with state.lock:
            state.requests += 1
        if method == "PUT":
            self._put(parts.path, query, headers)
        elif method == "POST" and "uploads" in query:
            with state.lock:
                upload_id = f"upload-{uuid4()}"
                state.uploads[upload_id] = {}
            self._reply(
                200,
                f"{_XML}<InitiateMultipartUploadResult {_XMLNS}><UploadId>{upload_id}</UploadId>"
                "</InitiateMultipartUploadResult>",
            )
        elif method == "POST" and "delete" in query:
            self._receive(headers, is_payload=False)
            self._reply(200, f"{_XML}<DeleteResult {_XMLNS}></DeleteResult>")
        elif method == "POST" and "uploadId" in query:
            self._complete(parts.path, query["uploadId"], headers)
        else:
            self._small(method, parts.path, headers)

    def _answer_arrivals(self, method: str) -> None:
        arrivals = self.server.state.arrivals
        if method == "GET":
            self._reply(200, json.dumps(arrivals.trace().to_json()))
        else:
            arrivals.reset()
            self._reply(204)

    def _put(self, path: str, query: dict[str, str], headers: dict[str, str]) -> None:
        state = self.server.state
        received = self._receive(headers)
        if received.refused:
            self._error(400, "BadDigest")
        elif "uploadId" in query:
            with state.lock:
                state.uploads[query["uploadId"]][int(query["partNumber"])] = received
            self._reply(200, etag=f"part-{query['partNumber']}")
        elif path.count("/") == 1 or path.endswith("/"):
            self._reply(200)
        else:
            self._create(path, received, headers)

    def _complete(self, path: str, upload_id: str, headers: dict[str, str]) -> None:
        self._receive(headers, is_payload=False)
        state = self.server.state
        with state.lock:
            parts = [part for _, part in sorted(state.uploads.pop(upload_id).items())]
        crc32c = 0
        for part in parts:
            crc32c = append_crc32c(crc32c, part.crc32c, part.size_bytes)
        told = headers.get("x-amz-checksum-crc32c")
        if told is not None and not self._checked(told == _encoded(crc32c)):
            self._error(400, "BadDigest")
        else:
            xml = f"{_XML}<CompleteMultipartUploadResult {_XMLNS}><ETag>sink</ETag></CompleteMultipartUploadResult>"
            self._create(path, Received(sum(part.size_bytes for part in parts), crc32c), headers, xml)

    def _create(self, path: str, received: Received, headers: dict[str, str], xml: str = "") -> None:
        state = self.server.state
        with state.lock:
            taken = path in state.objects and headers.get("if-none-match") == "*"
            if not taken:
                state.objects[path] = received
        if taken:
            self._error(412, "PreconditionFailed")
        else:
            told = not xml and "x-amz-checksum-crc32c" in headers
            self._reply(200, xml, etag="sink", crc32c=received.crc32c if told else None)

    def _small(self, method: str, path: str, headers: dict[str, str]) -> None:
        self._receive(headers, is_payload=False)
        state = self.server.state
        if method == "HEAD":
            found = state.objects.get(path)
            if path.count("/") == 1:
                self._reply(200)
            elif found is None:
                self._reply(404)
            else:
                self._reply(200, etag="sink", size_bytes=found.size_bytes, crc32c=found.crc32c)
        elif method == "GET" and path in state.objects:
            content = state.objects[path].content
            first, _, last = headers.get("range", "").removeprefix("bytes=").partition("-")
            part = content[int(first or 0) : int(last or len(content)) + 1]
            self._reply(206 if first else 200, part.decode("latin-1"), etag="sink")
        elif method == "GET" and path.count("/") > 1:
            self._error(404, "NoSuchKey")
        elif method == "GET":
            self._reply(200, f"{_XML}<ListBucketResult {_XMLNS}><IsTruncated>false</IsTruncated></ListBucketResult>")
        else:
            state.objects.pop(path, None)
            self._reply(204)

    def _receive(self, headers: dict[str, str], *, is_payload: bool = True) -> Received:
        """Take the body in; compute what the headers, or a trailer, promise."""
        received = Received()
        if "aws-chunked" in headers.get("content-encoding", ""):
            promised = {**headers, **self._receive_chunked(headers, received)}
        else:
            promised = headers
            self._receive_plain(int(headers.get("content-length", 0)), received, self._crc32_too(headers), is_payload)
        state = self.server.state
        with state.lock:
            state.payload_bytes += received.size_bytes if is_payload else 0
        if is_payload and (told := promised.get("x-amz-checksum-crc32c")):
            received.refused = not self._checked(told == _encoded(received.crc32c))
        elif is_payload and (told := promised.get("x-amz-checksum-crc32")):
            received.refused = not self._checked(told == _encoded(self._crc32))
        return received

    def _crc32_too(self, headers: dict[str, str]) -> bool:
        names = (*headers, headers.get("x-amz-trailer", ""))
        return "x-amz-checksum-crc32" in names

    def _receive_chunked(self, headers: dict[str, str], received: Received) -> dict[str, str]:
        """`<hex size>[;signature] CRLF bytes CRLF` until size 0, then trailers."""
        with_crc32 = self._crc32_too(headers)
        while size_bytes := int(self.rfile.readline(8192).partition(b";")[0], 16):
            self._receive_plain(size_bytes, received, with_crc32, is_payload=True)
            self.rfile.readline(8)
        return self._headers()

    _crc32 = 0

    def _receive_plain(self, size_bytes: int, received: Received, with_crc32: bool, is_payload: bool) -> None:
        if received.size_bytes == 0:
            self._crc32 = 0
        arrivals = self.server.state.arrivals
        left_bytes = size_bytes
        while left_bytes:
            block = self._block[: self.rfile.readinto1(self._block[:left_bytes])]
            if not block:
                raise ConnectionError("the client went away")
            if is_payload:
                arrivals.add(len(block))
            received.crc32c = extend_crc32c(received.crc32c, block)
            if size_bytes <= _SMALL_BYTES:
                received.content += block
            if with_crc32:
                self._crc32 = zlib.crc32(block, self._crc32)
            left_bytes -= len(block)
        received.size_bytes += size_bytes

    def _checked(self, is_right: bool) -> bool:
        state = self.server.state
        with state.lock:
            state.verified += is_right
            state.refused += not is_right
        return is_right

    def _error(self, status: int, code: str) -> None:
        self._reply(status, f"{_XML}<Error><Code>{code}</Code></Error>")

    def _reply(
        self, status: int, text: str = "", *, etag: str = "", size_bytes: int | None = None, crc32c: int | None = None
    ) -> None:
        body = text.encode("latin-1")
        lines = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Date: {formatdate(time.time(), usegmt=True)}"]
        if etag:
            lines += [f'ETag: "{etag}"', f"Last-Modified: {formatdate(time.time(), usegmt=True)}"]
        if crc32c is not None:
            lines += [f"x-amz-checksum-crc32c: {_encoded(crc32c)}", "x-amz-checksum-type: FULL_OBJECT"]
        lines.append(f"Content-Length: {len(body) if size_bytes is None else size_bytes}")
        self.wfile.write("\r\n".join([*lines, "", ""]).encode() + body)


def _encoded(checksum: int) -> str:
    return b64encode(checksum.to_bytes(4, "big")).decode()


@dataclass(frozen=True)
class Sink:
    endpoint_url: str
    state: State
    stop: Callable[[], None]


def start() -> Sink:
    """A sink in a thread of this process, on a free port of loopback."""
    server = _Server(("127.0.0.1", 0), _Connection)
    server.state = State()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return Sink(f"http://127.0.0.1:{server.server_address[1]}", server.state, stop)


def main() -> None:
    sink = start()
    sys.stdout.write(f"{sink.endpoint_url}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        if line.strip() == "forget":
            sink.state.objects.clear()
        state = sink.state
        sys.stdout.write(f"{state.requests} {state.payload_bytes} {state.verified} {state.refused}\n")
        sys.stdout.flush()
    sink.stop()


if __name__ == "__main__":
    main()
