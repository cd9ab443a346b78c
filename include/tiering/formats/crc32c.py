"""CRC-32C (Castagnoli): the checksum of Kafka's batches and of whole remote objects."""

from functools import lru_cache
from typing import Final

import google_crc32c
import numpy as np

# Coefficients are reflected: bit 31 is that of x^0.
_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31
_X: Final = 1 << 30


def extend_crc32c(crc32c: int, data: bytes | memoryview) -> int:
    """CRC-32C of what `crc32c` covers followed by `data`, which is not copied; start with 0."""
    # google-crc32c takes no memoryview, but an array over one.
    return int(google_crc32c.extend(crc32c, np.frombuffer(data, dtype=np.uint8)))


def append_crc32c(head: int, rest: int, rest_size_bytes: int) -> int:
    """CRC-32C of two pieces of bytes from those of each; no byte is read."""
    return _shifted(head, rest_size_bytes) ^ rest


def rest_crc32c(whole: int, head: int, rest_size_bytes: int) -> int:
    """CRC-32C of the last `rest_size_bytes` from those of all bytes and of the bytes before; no byte is read."""
    return whole ^ _shifted(head, rest_size_bytes)


def _shifted(crc32c: int, zeros: int) -> int:
    """What `crc32c` becomes when `zeros` zero bytes follow, initial and final inversion left out."""
    return _product(crc32c, _power_of_x(8 * zeros))


@lru_cache(maxsize=16)
def _power_of_x(exponent: int) -> int:
    power, square = _ONE, _X
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


def _product(left: int, right: int) -> int:
    """Of two polynomials over GF(2), modulo CRC-32C's."""
    product = 0
    for bit in range(31, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product
