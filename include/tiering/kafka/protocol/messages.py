"""What all requests and responses share: the frame around them, their fields, and the meaning of error codes.

Requests are values that are converted to bytes, and bytes are converted to answers; no connection is made here.
Source: Kafka's protocol guide.
"""

import struct
from collections.abc import Callable
from typing import ClassVar, Final, Protocol, TypeVar

from include.tiering.errors import (
    BrokersError,
    BrokersForbiddenError,
    BrokersLoginError,
    BrokersRefusedError,
    BrokersUnavailableError,
    FormatError,
    UnknownTopicError,
    printable,
)
from include.tiering.formats.primitive_types import Buffer, Reader, Writer

Answer_co = TypeVar("Answer_co", covariant=True)
_Item = TypeVar("_Item")

MAX_MESSAGE_CHARACTERS: Final = 1_000
"""A broker's own message is cut to this length before it becomes part of an error."""
MAX_TAGGED_FIELDS: Final = 1_000
"""The most tagged fields that one struct of a response may have; no release of Kafka has ten."""
_ITEMS_BETWEEN_CHECKS: Final = 1_024

CLIENT_ID: Final = b"kafka-tiering-operations"
_HEAD: Final = struct.Struct(">hhih")


class Request(Protocol[Answer_co]):
    """One request.

    `flexible_request` and `flexible_answer` say whether the header of the request and of the response ends in tagged
    fields. `has_throttle_time` says whether the response begins with the throttle time.
    """

    name: ClassVar[str]
    api_key: ClassVar[int]
    flexible_request: ClassVar[bool]
    flexible_answer: ClassVar[bool]
    has_throttle_time: ClassVar[bool]

    @property
    def version(self) -> int: ...

    def body(self) -> bytes: ...

    def answer(self, reader: Reader) -> Answer_co:
        """Parse the response body. Raises FormatError for bytes that are not a response to this request."""
        ...


def frame_request(request: Request[object], correlation_id: int) -> bytes:
    """Return the bytes to send: the size, the header and the body."""
    head = _HEAD.pack(request.api_key, request.version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    message = head + (b"\0" if request.flexible_request else b"") + request.body()
    return len(message).to_bytes(4) + message


class AnswerReader(Reader):
    """Reads a response of which nothing can be trusted, within bounds for the tagged fields and for the time.

    Args:
        value: the response.
        check_time: called after every `_ITEMS_BETWEEN_CHECKS` elements of arrays; raises when the time for the response
            is over.
    """

    def __init__(self, value: Buffer, check_time: Callable[[], object]) -> None:
        super().__init__(value)
        self._check_time = check_time
        self._items = 0

    def nullable_array(self, read_item: Callable[[Reader], _Item], what: str) -> tuple[_Item, ...] | None:
        def counted(reader: Reader) -> _Item:
            self._items += 1
            if self._items % _ITEMS_BETWEEN_CHECKS == 0:
                self._check_time()
            return read_item(reader)

        return super().nullable_array(counted, what)

    def tag_count(self) -> int:
        start, count = self.position, super().tag_count()
        if count > MAX_TAGGED_FIELDS:
            raise FormatError(f"{count} tagged fields, more than {MAX_TAGGED_FIELDS}", start)
        return count


def parse_response(
    request: Request[Answer_co], correlation_id: int, message: Buffer, check_time: Callable[[], object]
) -> Answer_co:
    """Parse the response in `message`, which is a frame without its size field.

    Args:
        request: the request.
        correlation_id: the number of the request.
        message: the response.
        check_time: see `AnswerReader`.

    Raises:
        FormatError: the response belongs to another request, or is malformed.
    """
    reader = AnswerReader(message, check_time)
    found = reader.int32()
    if found != correlation_id:
        raise FormatError(f"the response belongs to request {found}, not {correlation_id}")
    if request.flexible_answer:
        reader.tags()
    return request.answer(reader)


def throttle_ms_of(request: Request[object], message: Buffer) -> int:
    """Return for how many ms the broker reads no further request from the connection; 0 if the response has no time.

    Args:
        request: the request.
        message: its response, which `parse_response` has accepted.

    Raises:
        FormatError: the time is negative.
    """
    if not request.has_throttle_time:
        return 0
    reader = Reader(message)
    reader.int32()
    if request.flexible_answer:
        reader.tags()
    throttle_ms = reader.int32()
    if throttle_ms < 0:
        raise FormatError(f"the throttle time is {throttle_ms} ms", reader.position)
    return throttle_ms


def read_int16(reader: Reader) -> int:
    high = reader.int8()
    return high * 256 + (reader.int8() & 0xFF)


def read_boolean(reader: Reader) -> bool:
    return reader.int8() != 0


def read_text(reader: Reader, what: str) -> str | None:
    """Read a nullable string."""
    found = reader.nullable_bytes(what)
    return None if found is None else found.decode("utf-8", errors="replace")


def read_int32s(reader: Reader, what: str) -> tuple[int, ...]:
    return reader.array(Reader.int32, what)


def write_boolean(writer: Writer, value: bool) -> None:
    writer.int8(int(value))


def write_text(writer: Writer, text: str | None) -> None:
    """Write a nullable string."""
    if text is None:
        writer.nullable_bytes(None)
    else:
        writer.string(text)


UNKNOWN_TOPIC_OR_PARTITION: Final = 3
UNKNOWN_TOPIC_ID: Final = 100

_MEANINGS: Final[dict[int, tuple[str, type[BrokersError]]]] = {
    -1: ("unknown server error", BrokersRefusedError),
    1: ("the offset is outside of the log", BrokersRefusedError),
    UNKNOWN_TOPIC_OR_PARTITION: ("unknown topic or partition", UnknownTopicError),
    5: ("no leader just now", BrokersUnavailableError),
    6: ("not the leader any more", BrokersUnavailableError),
    7: ("timed out on the broker's side", BrokersUnavailableError),
    8: ("broker not available", BrokersUnavailableError),
    9: ("replica not available", BrokersUnavailableError),
    13: ("disconnected on the broker's side", BrokersUnavailableError),
    14: ("coordinator is loading", BrokersUnavailableError),
    15: ("coordinator not available", BrokersUnavailableError),
    16: ("not the coordinator any more", BrokersUnavailableError),
    17: ("invalid topic name", BrokersRefusedError),
    29: ("not authorised for this topic", BrokersForbiddenError),
    31: ("not authorised for the cluster", BrokersForbiddenError),
    33: ("SASL mechanism not enabled there", BrokersLoginError),
    34: ("request not valid in this state of the SASL login", BrokersLoginError),
    35: ("the broker is too old, or too new, for this request", BrokersRefusedError),
    40: ("invalid config", BrokersRefusedError),
    41: ("not the controller any more", BrokersUnavailableError),
    42: ("invalid request", BrokersRefusedError),
    44: ("refused by a policy of the cluster", BrokersRefusedError),
    53: ("not authorised for this transactional id", BrokersForbiddenError),
    56: ("the broker cannot use its disk", BrokersUnavailableError),
    58: ("login failed", BrokersLoginError),
    74: ("the leader has changed", BrokersUnavailableError),
    75: ("the leader is changing", BrokersUnavailableError),
    78: ("the new leader does not know its high watermark yet", BrokersUnavailableError),
    89: ("quota of requests used up", BrokersUnavailableError),
    UNKNOWN_TOPIC_ID: ("unknown topic id", UnknownTopicError),
    103: ("the topic was re-created", UnknownTopicError),
}


def refusal(code: int, what: str, message: str | None = None) -> BrokersError:
    """Return the error for a code other than 0.

    Args:
        code: Kafka's error code.
        what: the subject of the request and the broker, for the message.
        message: the broker's own message, if any.
    """
    words, kind = _MEANINGS.get(code, (f"error {code} of Kafka's protocol", BrokersRefusedError))
    return kind(f"{what}: {words}" + (f" ({printable(message[:MAX_MESSAGE_CHARACTERS])})" if message else ""))
