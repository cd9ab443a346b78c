"""Checksums of pieces and wholes follow from each other without the bytes."""

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.formats.record_batch import append_crc32c, extend_crc32c, rest_crc32c
from include.tiering.units import GIB


def test_the_check_value_of_crc_32c() -> None:
    assert extend_crc32c(0, b"123456789") == 0xE3069283
    assert extend_crc32c(extend_crc32c(0, b"1234"), b"56789") == 0xE3069283


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_pieces_and_wholes(head: bytes, rest: bytes) -> None:
    of_head, of_rest, whole = (google_crc32c.value(piece) for piece in (head, rest, head + rest))
    assert append_crc32c(of_head, of_rest, len(rest)) == whole
    assert rest_crc32c(whole, of_head, len(rest)) == of_rest


def test_large_pieces() -> None:
    """A gigabyte of zeros behind one byte, without making it: 1024 times the same piece."""
    block = bytes(2**20)
    whole, one = google_crc32c.value(b"x"), google_crc32c.value(block)
    for _ in range(1024):
        whole = append_crc32c(whole, one, len(block))
    many = 0
    for _ in range(1024):
        many = append_crc32c(many, one, len(block))
    assert append_crc32c(google_crc32c.value(b"x"), many, GIB) == whole
    assert rest_crc32c(whole, google_crc32c.value(b"x"), GIB) == many
