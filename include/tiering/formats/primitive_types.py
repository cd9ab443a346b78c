"""Kafka's primitive types: variable-length integers, and the flexible encoding of structs.

Each byte of a variable-length integer has 7 bits of the number, the lowest 7 bits first; the high bit of a byte is set
if more bytes follow. `uvarint` is unsigned 32 bit (at most 5 bytes), `varint` and `varlong` are zig-zag encoded signed
32 and 64 bit numbers (at most 5 and 10 bytes).

`Reader` reads the flexible encoding almost as leniently as the code that Kafka generates from its schemas:

| type            | bytes                                                                             |
|-----------------|-----------------------------------------------------------------------------------|
| int8/32/64      | big-endian                                                                        |
| uuid            | 16                                                                                |
| string          | uvarint length + 1, UTF-8                                                         |
| nullable bytes  | uvarint 0 for null, else length + 1, bytes                                        |
| array           | uvarint count + 1, elements                                                       |
| tagged fields   | uvarint count, each: uvarint tag, uvarint size, bytes; at the end of every struct |

`Reader` also accepts what no encoder writes but brokers read: a uvarint in more bytes than necessary, up to 5; excess
bits in its fifth byte, which are dropped; for nullable bytes a uvarint above 2^31, which means null; text that is not
UTF-8; tags in any order. `Reader` refuses a negative count of tagged fields, because Kafka 4.4 refuses it. `Reader`
also refuses a known tag whose size is not that of its type. No release compares this size: Kafka 3.9 has no known tags,
and 4.x ignores the size. `Writer` writes the canonical form, but tagged fields in the order given. Source:
behaviour of the classes that Kafka 3.9.2, 4.3.1 and 4.4.0 generate from their message schemas.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from include.tiering.errors import FormatError
from include.tiering.model.segments import Uuid

Buffer = bytes | bytearray | memoryview


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the value and the position after it.

    Raises:
        FormatError: it is cut off, or has more than 32 bits.
    """
    return _read(buffer, position, 32)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the value and the position after it.

    Raises:
        FormatError: it is cut off, or has more than 32 bits.
    """
    value, position = _read(buffer, position, 32)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the value and the position after it.

    Raises:
        FormatError: it is cut off, or has more than 64 bits.
    """
    value, position = _read(buffer, position, 64)
    return (value >> 1) ^ -(value & 1), position


def write_uvarint(value: int) -> bytes:
    """Encode a uvarint. Raises ValueError outside 0..2^32-1."""
    if not 0 <= value < 2**32:
        raise ValueError(f"uvarint {value} is outside 0..2^32-1")
    return _write(value)


def write_varint(value: int) -> bytes:
    """Encode a varint. Raises ValueError outside -2^31..2^31-1."""
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"varint {value} is outside -2^31..2^31-1")
    return _write((value << 1) ^ (value >> 31))


def write_varlong(value: int) -> bytes:
    """Encode a varlong. Raises ValueError outside -2^63..2^63-1."""
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"varlong {value} is outside -2^63..2^63-1")
    return _write((value << 1) ^ (value >> 63))


def _read(buffer: Buffer, position: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(position, len(buffer)):
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, at + 1
        shift += 7
        if shift >= bits:
            break
    else:
        raise FormatError("variable-length integer is cut off", min(position, len(buffer)))
    raise FormatError(f"variable-length integer has more than {bits} bits", position)


def _write(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_INT8: Final = struct.Struct(">b")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UUID_BYTES: Final = 16
_UVARINT_BYTES: Final = 5
_MAX_STRING_BYTES: Final = 2**15 - 1

_Item = TypeVar("_Item")


class TaggedField(NamedTuple):
    """A tagged field whose meaning is unknown. Tags are 0..2^32-1."""

    tag: int
    value: bytes


Tags = tuple[TaggedField, ...]


class Reader:
    """Reads fields one after the other. Every method raises FormatError with the position of a malformed field.

    Counts and lengths above the remaining bytes are refused before any memory is allocated.
    """

    def __init__(self, value: Buffer) -> None:
        self._value = memoryview(value)
        self._position = 0

    @property
    def position(self) -> int:
        return self._position

    @property
    def remaining(self) -> int:
        return len(self._value) - self._position

    def int8(self) -> int:
        return self._number(_INT8)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uuid(self) -> Uuid:
        return Uuid(self._bytes(_UUID_BYTES, "uuid"))

    def uvarint(self) -> int:
        """Read a uvarint; return its lowest 32 bits as an int32, which may be negative."""
        start, value = self._position, 0
        for number in range(_UVARINT_BYTES):
            byte = self._bytes(1, "variable-length integer")[0]
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                return _as_signed(value, 32)
        raise FormatError(f"variable-length integer has more than {_UVARINT_BYTES} bytes", start)

    def short_uvarint(self, what: str) -> int:
        """Read a uvarint that Kafka stores in an int16."""
        start, value = self._position, self.uvarint()
        if value > _MAX_STRING_BYTES:
            raise FormatError(f"{what} {value} is above {_MAX_STRING_BYTES}", start)
        return _as_signed(value, 16)

    def string(self, what: str) -> str:
        start, length = self._position, self._length()
        if length < 0:
            raise FormatError(f"{what} is null", start)
        if length > _MAX_STRING_BYTES:
            raise FormatError(f"{what} has {length} bytes, more than {_MAX_STRING_BYTES}", start)
        return self._bytes(length, what).decode("utf-8", errors="surrogateescape")

    def nullable_bytes(self, what: str) -> bytes | None:
        length = self._length()
        return None if length < 0 else self._bytes(length, what)

    def nullable_view(self, what: str) -> memoryview | None:
        """Read nullable bytes without copying them: they are valid as long as the value is."""
        length = self._length()
        return None if length < 0 else self._view(length, what)

    def array(self, read_item: Callable[["Reader"], _Item], what: str) -> tuple[_Item, ...]:
        start, found = self._position, self.nullable_array(read_item, what)
        if found is None:
            raise FormatError(f"{what} is null", start)
        return found

    def nullable_array(self, read_item: Callable[["Reader"], _Item], what: str) -> tuple[_Item, ...] | None:
        start, count = self._position, self._length()
        if count < 0:
            return None
        if count > self.remaining:
            raise FormatError(f"{count} {what} cannot be in {self.remaining} bytes", start)
        return tuple(read_item(self) for _ in range(count))

    def tags(self) -> Tags:
        """Read the tagged fields of a struct without known tags."""
        return self.flag_and_tags(None)[1]

    def flag_and_tags(self, flag_tag: int | None) -> tuple[bool, Tags]:
        """Read the tagged fields of a struct with at most one known tag, a boolean that is False by default.

        Return the boolean and the fields with unknown tags.

        Args:
            flag_tag: the known tag; None if the struct has none.
        """
        flag, unknown = False, []
        for _ in range(self.tag_count()):
            tag, start, size = self.uvarint() & 0xFFFFFFFF, self._position, self.uvarint()
            if size < 0 or (tag == flag_tag and size != 1):
                raise FormatError(f"tagged field {tag} has a size of {size} bytes", start)
            value = self._bytes(size, f"tagged field {tag}")
            if tag == flag_tag:
                flag = value != b"\x00"
            else:
                unknown.append(TaggedField(tag, value))
        return flag, tuple(unknown)

    def tag_count(self) -> int:
        """Read the number of tagged fields at the end of a struct."""
        start, count = self._position, self.uvarint()
        if not 0 <= count <= self.remaining:
            raise FormatError(f"{count} tagged fields cannot be in {self.remaining} bytes", start)
        return count

    def _length(self) -> int:
        return _as_signed(self.uvarint() - 1, 32)

    def _number(self, form: struct.Struct) -> int:
        number: int = form.unpack(self._bytes(form.size, f"int{8 * form.size}"))[0]
        return number

    def _bytes(self, size: int, what: str) -> bytes:
        return bytes(self._view(size, what))

    def _view(self, size: int, what: str) -> memoryview:
        if size > self.remaining:
            raise FormatError(f"{what} needs {size} bytes, {self.remaining} are left", self._position)
        taken = self._value[self._position : self._position + size]
        self._position += size
        return taken


class Writer:
    """Concatenates encoded fields. Every method raises ValueError for values outside of its type."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def value(self) -> bytes:
        return b"".join(self._parts)

    def int8(self, number: int) -> None:
        self._number(_INT8, number)

    def int32(self, number: int) -> None:
        self._number(_INT32, number)

    def int64(self, number: int) -> None:
        self._number(_INT64, number)

    def uuid(self, uuid: Uuid) -> None:
        self._parts.append(uuid.value)

    def uvarint(self, number: int) -> None:
        self._parts.append(write_uvarint(number))

    def string(self, text: str) -> None:
        encoded = text.encode("utf-8", errors="surrogateescape")
        if len(encoded) > _MAX_STRING_BYTES:
            raise ValueError(f"a string of {len(encoded)} bytes, more than {_MAX_STRING_BYTES}")
        self.nullable_bytes(encoded)

    def nullable_bytes(self, value: bytes | None) -> None:
        self.uvarint(0 if value is None else len(value) + 1)
        self._parts.append(value or b"")

    def array(self, write_item: Callable[["Writer", _Item], None], items: Sequence[_Item]) -> None:
        self.uvarint(len(items) + 1)
        for item in items:
            write_item(self, item)

    def tags(self, tags: Tags) -> None:
        self.uvarint(len(tags))
        for tag, value in tags:
            self.uvarint(tag)
            self.uvarint(len(value))
            self._parts.append(value)

    def _number(self, form: struct.Struct, number: int) -> None:
        try:
            self._parts.append(form.pack(number))
        except struct.error as error:
            raise ValueError(f"{number} does not fit into an int{8 * form.size}") from error


def _as_signed(number: int, bits: int) -> int:
    """Return the lowest `bits` bits as a number in two's complement."""
    sign = 1 << (bits - 1)
    kept = number & (2 * sign - 1)
    return kept - 2 * sign if kept & sign else kept
