"""Fields that only requests and answers have, beside those of `formats.flexible`, and what a request is.

A request is sent in one fixed version, the lowest that says all we need: brokers keep old versions for years, and the
bytes of one version never change.

    frame     size int32 | header | body
    request   api key int16 | version int16 | correlation id int32 | client id: length int16, text | tagged fields
    answer    correlation id int32 | tagged fields | body

SaslHandshake and the answer of ApiVersions have no tagged fields behind their heads.
"""

import struct
from typing import ClassVar, Final, Protocol, TypeVar

from include.tiering.errors import FormatError
from include.tiering.formats.flexible import Reader, Writer

Answer_co = TypeVar("Answer_co", covariant=True)

CLIENT_ID: Final = b"kafka-tiering-operations"
_HEAD: Final = struct.Struct(">hhih")


class Request(Protocol[Answer_co]):
    """One question. `flexible_request` and `flexible_answer`: whether the head ends in tagged fields."""

    name: ClassVar[str]
    api_key: ClassVar[int]
    flexible_request: ClassVar[bool]
    flexible_answer: ClassVar[bool]

    @property
    def version(self) -> int: ...

    def body(self) -> bytes: ...

    def answer(self, reader: Reader) -> Answer_co:
        """Raises FormatError for bytes that are no answer to it."""
        ...


def framed(request: Request[object], correlation_id: int) -> bytes:
    """The request as it goes over the wire, its size before it."""
    head = _HEAD.pack(request.api_key, request.version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    message = head + (b"\0" if request.flexible_request else b"") + request.body()
    return len(message).to_bytes(4) + message


def parsed(request: Request[Answer_co], correlation_id: int, message: bytes) -> Answer_co:
    """The answer in a frame without its size.

    Raises:
        FormatError: it answers another request, or breaks the form of this one.
    """
    reader = Reader(message)
    answered = reader.int32()
    if answered != correlation_id:
        raise FormatError(f"answer to request {answered}, not {correlation_id}")
    if request.flexible_answer:
        reader.tags()
    return request.answer(reader)


def read_int16(reader: Reader) -> int:
    high = reader.int8()
    return high * 256 + (reader.int8() & 0xFF)


def read_boolean(reader: Reader) -> bool:
    return reader.int8() != 0


def read_text(reader: Reader, what: str) -> str | None:
    """A nullable string."""
    found = reader.nullable_bytes(what)
    return None if found is None else found.decode("utf-8", errors="replace")


def read_int32s(reader: Reader, what: str) -> tuple[int, ...]:
    return reader.array(Reader.int32, what)


def write_boolean(writer: Writer, value: bool) -> None:
    writer.int8(int(value))


def write_text(writer: Writer, text: str | None) -> None:
    """A nullable string."""
    if text is None:
        writer.nullable_bytes(None)
    else:
        writer.string(text)
