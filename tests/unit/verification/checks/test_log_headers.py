"""Headers that a broker writes, and each way in which one cannot be."""

import pytest

from include.tiering.formats.record_batch import ControlType
from include.tiering.verification.log_batches import HeaderRules, Timestamps
from tests.doubles.batch_tables import Batch, batch, data, end, shown
from tests.doubles.record_batches import CONTROL, TRANSACTIONAL

SOUND = [
    batch(0, 4),
    batch(5, attributes=0x4C, last_offset_delta=3, record_count=0),
    batch(9, producer_id=7, producer_epoch=0, base_sequence=0),
    data(10, 12, 7),
    end(13, 7, ControlType.ABORT),
    end(14, 7, ControlType.COMMIT),
    batch(15, max_timestamp=-1),
]


def rules(*batches: Batch) -> HeaderRules:
    found = HeaderRules()
    shown(found, batches)
    return found


def test_headers_of_a_broker_are_possible() -> None:
    assert rules(*SOUND).impossible.count == 0


@pytest.mark.parametrize(
    ("strange", "what"),
    [
        (batch(20, attributes=0x80), "unknown attributes"),
        (batch(20, attributes=-0x8000), "unknown attributes"),
        (batch(20, attributes=5), "an unknown codec"),
        (batch(20, last_offset_delta=-1, record_count=0), "no range of offsets"),
        (batch(2**63 - 1, last_offset_delta=1, record_count=2), "no range of offsets"),
        (batch(20, record_count=-1), "a record count that its offsets do not hold"),
        (batch(20, record_count=2), "a record count that its offsets do not hold"),
        (batch(20, 25, batch_length=49 + 6 * 7 - 1), "more records than fit"),
        (batch(20, max_timestamp=-2), "a timestamp below -1"),
        (batch(20, producer_id=7), "a producer without an epoch"),
        (batch(20, producer_id=-2), "an impossible producer id"),
        (batch(20, attributes=TRANSACTIONAL), "a transaction without a producer"),
        (Batch(batch(20, attributes=CONTROL).header, ControlType.ABORT), "control outside of a transaction"),
        (Batch(end(20, 7, ControlType.ABORT).header._replace(attributes=0x31)), "not one plain control record"),
        (Batch(end(20, 7, ControlType.ABORT).header._replace(last_offset_delta=1)), "not one plain control record"),
        (end(20, 7, ControlType.LEADER_CHANGE), "neither an ABORT nor a COMMIT"),
        (end(20, 7, ControlType.UNKNOWN), "neither an ABORT nor a COMMIT"),
    ],
)
def test_a_contradiction_is_named_with_its_batch(strange: Batch, what: str) -> None:
    found = rules(*SOUND, strange)
    assert (found.impossible.count, found.impossible.first.rpartition(": ")[2]) == (1, what)
    assert f"at byte {100 * len(SOUND)}" in found.impossible.first


def test_compressed_records_may_be_small_and_many() -> None:
    assert rules(batch(20, 500, attributes=4)).impossible.count == 0


def test_a_batch_that_compaction_thinned() -> None:
    found = rules(batch(0, 4), batch(5, 9, record_count=3))
    assert (found.thinned.count, found.thinned.first) == (1, "batch 5..9 at byte 100 holds 3 records")
    assert rules(*SOUND[:1]).thinned.count == 0


def test_timestamps_across_tables() -> None:
    times = Timestamps(2000)
    assert times.largest_ms == -1
    shown(times, [batch(0, max_timestamp=3000), batch(1), batch(2, max_timestamp=2001)], 1)
    assert (times.largest_ms, times.above.count) == (3000, 2)
    assert times.above.first == "batch 0..0 at byte 0 has timestamp 3000, above 2000"
