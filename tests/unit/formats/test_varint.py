from collections.abc import Callable

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import primitive_types


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_uvarint_bytes(value: int, encoded: str) -> None:
    assert primitive_types.write_uvarint(value).hex() == encoded
    assert primitive_types.read_uvarint(b"\xaa" + bytes.fromhex(encoded) + b"\xaa", 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varint_bytes_are_zig_zag(value: int, encoded: str) -> None:
    assert primitive_types.write_varint(value).hex() == encoded
    assert primitive_types.read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")]
)
def test_varlong_bytes(value: int, encoded: str) -> None:
    assert primitive_types.write_varlong(value).hex() == encoded
    assert primitive_types.read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_a_cut_number_names_where_it_began(encoded: str) -> None:
    with pytest.raises(FormatError, match="cut off") as caught:
        primitive_types.read_uvarint(b"\0\0" + bytes.fromhex(encoded), 2)
    assert caught.value.position == 2


@pytest.mark.parametrize(
    ("read", "encoded"),
    [
        (primitive_types.read_uvarint, "ffffffff10"),
        (primitive_types.read_uvarint, "ffffffffff01"),
        (primitive_types.read_varint, "808080808000"),
        (primitive_types.read_varlong, "ffffffffffffffffff02"),
        (primitive_types.read_varlong, "8080808080808080808000"),
    ],
)
def test_more_bits_than_the_type_has_are_refused(read: Callable[[bytes, int], tuple[int, int]], encoded: str) -> None:
    with pytest.raises(FormatError, match="more than"):
        read(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (primitive_types.write_uvarint, -1),
        (primitive_types.write_uvarint, 2**32),
        (primitive_types.write_varint, 2**31),
        (primitive_types.write_varlong, -(2**63) - 1),
    ],
)
def test_what_does_not_fit_is_not_written(write: Callable[[int], bytes], value: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        write(value)
