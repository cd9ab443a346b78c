"""SASL over Kafka's protocol.

SaslHandshake 1, the old encoding (length and count before what they count, int16 and int32): mechanism string
    -> error int16 | mechanisms string array
SaslAuthenticate 2: bytes | tags
    -> error int16 | message nullable string | bytes | session lifetime ms int64 | tags
"""

from dataclasses import dataclass, field
from typing import ClassVar

from include.tiering.errors import FormatError
from include.tiering.formats.flexible import Reader, Writer
from include.tiering.kafka.protocol.fields import read_int16, read_text


@dataclass(frozen=True, slots=True)
class HandshakeAnswer:
    error: int
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaslHandshake:
    name: ClassVar[str] = "SaslHandshake"
    api_key: ClassVar[int] = 17
    flexible_request: ClassVar[bool] = False
    flexible_answer: ClassVar[bool] = False
    version: ClassVar[int] = 1

    mechanism: str

    def body(self) -> bytes:
        encoded = self.mechanism.encode()
        return len(encoded).to_bytes(2) + encoded

    def answer(self, reader: Reader) -> HandshakeAnswer:
        error, count = read_int16(reader), reader.int32()
        if count > reader.remaining:
            raise FormatError(f"{count} mechanisms in {reader.remaining} bytes", reader.position)
        return HandshakeAnswer(error, tuple(_old_string(reader) for _ in range(count)))


@dataclass(frozen=True, slots=True)
class AuthenticateAnswer:
    error: int
    message: str | None
    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslAuthenticate:
    name: ClassVar[str] = "SaslAuthenticate"
    api_key: ClassVar[int] = 36
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    version: ClassVar[int] = 2

    token: bytes = field(repr=False)

    def body(self) -> bytes:
        writer = Writer()
        writer.nullable_bytes(self.token)
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> AuthenticateAnswer:
        return AuthenticateAnswer(
            read_int16(reader), read_text(reader, "message"), reader.nullable_bytes("token") or b""
        )


def _old_string(reader: Reader) -> str:
    length = read_int16(reader)
    if length > reader.remaining:
        raise FormatError(f"text of {length} bytes in {reader.remaining}", reader.position)
    return bytes(reader.int8() & 0xFF for _ in range(length)).decode("utf-8", errors="replace")
