from collections.abc import Callable

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_uvarint_bytes(value: int, encoded: str) -> None:
    assert varint.write_uvarint(value).hex() == encoded
    assert varint.read_uvarint(b"\xaa" + bytes.fromhex(encoded) + b"\xaa", 1) == (value, 1 + len(encoded) // 2)


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
    assert varint.write_varint(value).hex() == encoded
    assert varint.read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")]
)
def test_varlong_bytes(value: int, encoded: str) -> None:
    assert varint.write_varlong(value).hex() == encoded
    assert varint.read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_a_cut_number_names_where_it_began(encoded: str) -> None:
    with pytest.raises(FormatError, match="cut off") as caught:
        varint.read_uvarint(b"\0\0" + bytes.fromhex(encoded), 2)
    assert caught.value.position == 2


@pytest.mark.parametrize(
    ("read", "encoded"),
    [
        (varint.read_uvarint, "ffffffff10"),
        (varint.read_uvarint, "ffffffffff01"),
        (varint.read_varint, "808080808000"),
        (varint.read_varlong, "ffffffffffffffffff02"),
        (varint.read_varlong, "8080808080808080808000"),
    ],
)
def test_more_bits_than_the_type_has_are_refused(read: Callable[[bytes, int], tuple[int, int]], encoded: str) -> None:
    with pytest.raises(FormatError, match="more than"):
        read(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (varint.write_uvarint, -1),
        (varint.write_uvarint, 2**32),
        (varint.write_varint, 2**31),
        (varint.write_varlong, -(2**63) - 1),
    ],
)
def test_what_does_not_fit_is_not_written(write: Callable[[int], bytes], value: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        write(value)
