"""What workers send is what they say they send."""

import pytest

from benchmarks.quota_worker import CountingLimiter, RepeatedBlock
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES
from include.tiering.units import KIB, MIB


@pytest.mark.parametrize("size_bytes", [1, 4 * KIB, MIB, MIB + 1, 8 * MIB, 9 * MIB + 5, 16 * MIB])
def test_the_checksums_of_a_repeated_block_are_those_of_its_bytes(size_bytes: int) -> None:
    body = RepeatedBlock(size_bytes)
    content = bytearray(size_bytes)
    position = 0
    while position < size_bytes:
        position += body.read_into(position, memoryview(content)[position : position + 700 * KIB])
    assert body.read_into(size_bytes, memoryview(bytearray(1))) == 0
    ends = [*range(RUNNING_CRC32C_STEP_BYTES, size_bytes, RUNNING_CRC32C_STEP_BYTES), size_bytes]
    assert body.running_crc32c == [extend_crc32c(0, memoryview(content)[:end]) for end in ends]
    assert body.crc32c == body.running_crc32c[-1]


class Half:
    waited_seconds = 1.5

    def take(self, wanted_bytes: int) -> int:
        return wanted_bytes // 2


def test_what_was_granted_is_counted_and_not_what_was_wanted() -> None:
    limiter = CountingLimiter(Half())
    assert (limiter.take(100), limiter.take(40)) == (50, 20)
    assert limiter.charged_bytes == 70
    assert limiter.waited_seconds == 1.5
    assert limiter.longest_wait_s > 0
