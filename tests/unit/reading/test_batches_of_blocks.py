"""Batches of a log that comes in blocks: wherever a block ends, the batches are the same."""

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import HEADER_SIZE, check_crc
from include.tiering.reading.scan import batches_of
from tests.doubles.record_batches import record_batch

LOG = b"".join(record_batch(10 * number, count=3, value_bytes=40 * number) for number in range(5))


def found(log: bytes, block_bytes: int, position: int = 0) -> list[tuple[int, int, bytes]]:
    """Position, base offset and bytes of the batches; their CRCs are compared."""
    blocks = (log[at : at + block_bytes] for at in range(0, len(log), block_bytes))
    batches = []
    for at, header, batch in batches_of(blocks, position):
        check_crc(header, batch, at)
        batches.append((at, header.base_offset, bytes(batch)))
    return batches


@pytest.mark.parametrize("block_bytes", [1, 7, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1, 200, len(LOG) - 1])
def test_blocks_of_any_size(block_bytes: int) -> None:
    whole = found(LOG, len(LOG), 1000)
    assert [offset for _, offset, _ in whole] == [0, 10, 20, 30, 40]
    assert b"".join(batch for _, _, batch in whole) == LOG
    assert [at for at, _, _ in whole] == [1000 + LOG.index(batch) for _, _, batch in whole]
    assert found(LOG, block_bytes, 1000) == whole


def test_only_a_batch_in_two_blocks_is_copied() -> None:
    blocks = [LOG[:-100], LOG[-100:]]
    inside = [batch.obj is blocks[0] for _, _, batch in batches_of(blocks, 0)]
    assert inside == [True, True, True, True, False]


@pytest.mark.parametrize("left_bytes", [1, HEADER_SIZE - 1, HEADER_SIZE + 10])
@pytest.mark.parametrize("block_bytes", [50, 10_000])
def test_a_log_that_ends_within_a_batch(left_bytes: int, block_bytes: int) -> None:
    with pytest.raises(FormatError) as error:
        found(LOG + LOG[:left_bytes], block_bytes)
    assert (error.value.position, f"{left_bytes} bytes" in error.value.message) == (len(LOG), True)


def test_the_position_of_a_broken_header() -> None:
    broken = bytearray(LOG)
    second = len(record_batch(0, count=3, value_bytes=0))
    broken[second + 16] = 9
    for block_bytes in (1, 100, len(LOG)):
        with pytest.raises(FormatError) as error:
            found(bytes(broken), block_bytes)
        assert error.value.position == second
