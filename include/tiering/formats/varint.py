"""Kafka's variable-length integers: 7 bits a byte, low group first, the high bit says that more follow.

`uvarint` is unsigned 32 bit (at most 5 bytes), `varint` and `varlong` are zig-zag encoded signed 32 and 64 bit numbers
(at most 5 and 10 bytes).
"""

from include.tiering.errors import FormatError

Buffer = bytes | bytearray | memoryview


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it.

    Raises:
        FormatError: cut off, or more than 32 bits.
    """
    return _read(buffer, position, 32)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it.

    Raises:
        FormatError: cut off, or more than 32 bits.
    """
    value, position = _read(buffer, position, 32)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it.

    Raises:
        FormatError: cut off, or more than 64 bits.
    """
    value, position = _read(buffer, position, 64)
    return (value >> 1) ^ -(value & 1), position


def write_uvarint(value: int) -> bytes:
    """Raises ValueError outside 0..2^32-1."""
    if not 0 <= value < 2**32:
        raise ValueError(f"uvarint {value} is outside 0..2^32-1")
    return _write(value)


def write_varint(value: int) -> bytes:
    """Raises ValueError outside -2^31..2^31-1."""
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"varint {value} is outside -2^31..2^31-1")
    return _write((value << 1) ^ (value >> 31))


def write_varlong(value: int) -> bytes:
    """Raises ValueError outside -2^63..2^63-1."""
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
