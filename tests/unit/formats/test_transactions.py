import pytest

from include.tiering.formats.indexes import (
    AbortedTxn,
    OngoingTransaction,
    ProducerEntry,
    Transactions,
    open_transactions,
)
from include.tiering.formats.record_batch import ControlType, iter_headers
from tests.doubles.byte_sources import BytesSource
from tests.doubles.record_batches import data_batch, marker, record_batch

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def _producer(producer_id: int, first_offset: int = -1) -> ProducerEntry:
    return ProducerEntry(producer_id, 1, 0, 10, 0, 1_700_000_000_000, 4, first_offset)


def _after(*batches: bytes, entries: tuple[ProducerEntry, ...] = ()) -> Transactions:
    return open_transactions(entries, iter_headers(BytesSource(b"".join(batches))))


def test_without_transactions_the_log_is_stable_up_to_the_high_watermark() -> None:
    found = _after(record_batch(0, count=9))
    assert (found.open, found.completed) == ((), ())
    assert found.last_stable_offset(9) == 9


def test_an_open_transaction_holds_back_from_its_first_batch() -> None:
    found = _after(record_batch(0), data_batch(1, 7), record_batch(2), data_batch(3, 7))
    assert found.open == (OngoingTransaction(producer_id=7, first_offset=1),)
    assert found.last_stable_offset(4) == 1


@pytest.mark.parametrize("control", [ABORT, COMMIT])
def test_a_marker_ends_it(control: ControlType) -> None:
    found = _after(data_batch(0, 7, count=3), marker(3, 7, control))
    assert found.open == ()
    assert found.last_stable_offset(4) == 4
    assert found.aborted == ((AbortedTxn(7, 0, 3, 4),) if control is ABORT else ())


def test_the_first_open_one_counts() -> None:
    found = _after(data_batch(0, 7), data_batch(1, 8), data_batch(2, 9), marker(3, 7, COMMIT))
    assert [txn.first_offset for txn in found.open] == [1, 2]
    assert found.last_stable_offset(4) == 1


def test_a_transaction_of_the_snapshot_goes_on() -> None:
    entries = (_producer(6), _producer(7, 40))
    assert _after(record_batch(50), entries=entries).last_stable_offset(51) == 40
    assert _after(data_batch(50, 7), entries=entries).open == (OngoingTransaction(7, 40),)
    ended = _after(record_batch(50), marker(51, 7, ABORT), entries=entries)
    assert ended.open == ()
    assert ended.aborted == (AbortedTxn(producer_id=7, first_offset=40, last_offset=51, last_stable_offset=52),)


def test_an_abort_beside_an_older_open_one_records_that_one_s_start() -> None:
    found = _after(data_batch(5, 3), data_batch(6, 7), marker(7, 7, ABORT))
    assert found.aborted == (AbortedTxn(7, 6, 7, last_stable_offset=5),)


def test_a_marker_above_the_high_watermark_does_not_count_yet() -> None:
    found = _after(data_batch(0, 7, count=3), marker(3, 7, COMMIT), record_batch(4))
    assert found.last_stable_offset(3) == 0
    assert found.last_stable_offset(4) == 4


def test_a_marker_without_a_transaction_changes_nothing() -> None:
    found = _after(marker(0, 7, ABORT), record_batch(1))
    assert (found.open, found.completed) == ((), ())


def test_plain_batches_of_an_idempotent_producer_open_nothing() -> None:
    assert _after(record_batch(0, producer_id=7, producer_epoch=0, base_sequence=0)).open == ()


def test_kraft_s_control_batches_end_nothing() -> None:
    assert _after(data_batch(0, 7), marker(1, 7, ControlType.LEADER_CHANGE)).open == (OngoingTransaction(7, 0),)
