"""A segment in the middle of a log: what a plain producer state manager says of the whole log breaks nothing, and what
it does not say does."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats import indexes
from include.tiering.formats.indexes import AbortedTxn, ProducerEntry, open_transactions
from include.tiering.formats.record_batch import ControlType, LogBatch
from include.tiering.verification import log_consistency
from include.tiering.verification.log_consistency import SegmentTransactions, SnapshotProducers
from tests.doubles.batch_tables import Batch, batch, data, end, shown

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


@dataclass
class Producer:
    epoch: int = 0
    sequence: int = 0
    entry: ProducerEntry | None = None


@dataclass
class PlainLog:
    """Batches, and what a broker knows of their producers after the last one."""

    batches: list[Batch] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    offset: int = 0

    def plain(self, count: int) -> None:
        self._add(batch(self.offset, self.offset + count - 1))

    def data(self, producer_id: int, count: int, *, transactional: bool) -> None:
        producer, last = self.producers.setdefault(producer_id, Producer()), self.offset + count - 1
        open_from = producer.entry.current_txn_first_offset if producer.entry else -1
        if transactional and open_from < 0:
            open_from = self.offset
        producer.entry = ProducerEntry(
            producer_id, producer.epoch, (producer.sequence + count - 1) % 2**31, last, count - 1, 0, -1, open_from
        )
        made = data(self.offset, last, producer_id, epoch=producer.epoch, sequence=producer.sequence)
        producer.sequence = (producer.sequence + count) % 2**31
        self._add(made if transactional else Batch(made.header._replace(attributes=0)))

    def end(self, producer_id: int, control: ControlType, *, bump: bool) -> None:
        producer = self.producers.setdefault(producer_id, Producer())
        entry = producer.entry or ProducerEntry(producer_id, producer.epoch, -1, -1, 0, 0, -1, -1)
        if bump:
            producer.epoch += 1
            producer.sequence = 0
            entry = replace(entry, producer_epoch=producer.epoch, last_sequence=-1, last_offset=-1)
        producer.entry = replace(entry, current_txn_first_offset=-1)
        self._add(end(self.offset, producer_id, control, epoch=producer.epoch))

    def _add(self, made: Batch) -> None:
        self.batches.append(made)
        self.offset = made.header.last_offset + 1


@dataclass
class Segment:
    """The rest of a log from `start` on, with the objects that a broker would give it."""

    batches: list[Batch]
    start: int
    aborted: list[AbortedTxn]
    entries: list[ProducerEntry]

    def follow(
        self,
        aborted: Sequence[AbortedTxn] | None = None,
        entries: Sequence[ProducerEntry] | None = None,
        size: int = 4096,
    ) -> tuple[SegmentTransactions, SnapshotProducers]:
        index = indexes.parse_transaction_index(index_bytes(self.aborted if aborted is None else aborted))
        transactions = SegmentTransactions(index, self.start)
        snapshot = indexes.serialize_producer_snapshot(self.entries if entries is None else entries)
        producers = SnapshotProducers(indexes.producer_entries_of(snapshot), transactions, self.start)
        for check in (transactions, producers):
            shown(check, self.batches, size)
        return transactions, producers


def index_bytes(aborted: Sequence[AbortedTxn]) -> bytes:
    return b"".join(b"\0\0" + b"".join(number.to_bytes(8, "big", signed=True) for number in each) for each in aborted)


@st.composite
def logs(draw: st.DrawFn) -> PlainLog:
    log = PlainLog()
    for _ in range(draw(st.integers(1, 25))):
        producer_id, what = draw(st.integers(1, 3)), draw(st.integers(0, 9))
        if what == 0:
            log.plain(draw(st.integers(1, 3)))
        elif what <= 2:
            log.data(producer_id + 10, draw(st.integers(1, 3)), transactional=False)
        elif what <= 6:
            log.data(producer_id, draw(st.integers(1, 3)), transactional=True)
        else:
            log.end(producer_id, draw(st.sampled_from([ABORT, ABORT, COMMIT])), bump=draw(st.booleans()))
    return log


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """With an aborted transaction and an idempotent producer at the end."""
    log = draw(logs())
    cut = draw(st.integers(0, len(log.batches) - 1))
    log.data(1, 2, transactional=True)
    log.data(11, 2, transactional=False)
    log.end(1, ABORT, bump=False)
    start = log.batches[cut].header.base_offset
    known = open_transactions((), [LogBatch(0, header, control) for header, control in log.batches])
    entries = [producer.entry for producer in log.producers.values() if producer.entry is not None]
    kept = [e for e in entries if e.has_open_transaction or e.producer_id == 11 or draw(st.integers(0, 3))]
    return Segment(log.batches[cut:], start, [a for a in known.aborted if a.last_offset >= start], kept)


@given(segments(), st.integers(1, 4))
def test_what_a_broker_knows_breaks_nothing(segment: Segment, table_batches: int) -> None:
    transactions, producers = segment.follow(size=table_batches)
    assert transactions.wrong_entries().first == ""
    assert transactions.missing().first == ""
    assert producers.wrong_entries().first == ""


@settings(max_examples=30)
@given(segments(), st.data())
def test_an_entry_that_says_something_else_is_wrong(segment: Segment, choice: st.DataObject) -> None:
    number = choice.draw(st.integers(0, len(segment.aborted) - 1))
    true = segment.aborted[number]
    false = choice.draw(
        st.sampled_from(
            [
                true._replace(producer_id=true.producer_id + 100),
                true._replace(first_offset=true.last_offset),
                true._replace(first_offset=-1),
                true._replace(last_offset=true.last_offset + 10_000),
                true._replace(last_stable_offset=true.last_offset + 2),
                true._replace(last_stable_offset=-1),
            ]
        )
    )
    transactions, _ = segment.follow([*segment.aborted[:number], false, *segment.aborted[number + 1 :]])
    assert transactions.wrong_entries().count == 1


@given(segments(), st.data())
def test_an_entry_that_lacks_is_missed_if_the_transaction_shows(segment: Segment, choice: st.DataObject) -> None:
    number = choice.draw(st.integers(0, len(segment.aborted) - 1))
    gone = segment.aborted[number]
    transactions, _ = segment.follow([*segment.aborted[:number], *segment.aborted[number + 1 :]])
    shows = any(
        each.header.producer_id == gone.producer_id
        and each.control is None
        and max(gone.first_offset, segment.start) <= each.header.base_offset < gone.last_offset
        for each in segment.batches
    )
    assert transactions.missing().count == shows


def test_an_entry_twice_is_wrong_once() -> None:
    log = PlainLog()
    log.data(1, 2, transactional=True)
    log.end(1, ABORT, bump=False)
    entry = AbortedTxn(1, 0, 2, 3)
    segment = Segment(log.batches, 0, [entry, entry], [])
    assert segment.follow()[0].wrong_entries().count == 1


def test_after_a_marker_nothing_began_before_the_segment() -> None:
    log = PlainLog(offset=100)
    log.end(1, COMMIT, bump=False)
    log.data(1, 2, transactional=True)
    log.end(1, ABORT, bump=False)
    for first, wrong_entries in ((101, 0), (50, 1)):
        segment = Segment(log.batches, 100, [AbortedTxn(1, first, 103, 104)], [])
        assert segment.follow()[0].wrong_entries().count == wrong_entries


@settings(max_examples=30)
@given(segments(), st.data())
def test_a_producer_that_says_something_else_is_wrong(segment: Segment, choice: st.DataObject) -> None:
    told = [each for each in segment.entries if each.last_offset >= segment.start]
    true = choice.draw(st.sampled_from(told))
    false = choice.draw(
        st.sampled_from(
            [
                replace(true, last_offset=true.last_offset + 7),
                replace(true, last_offset=true.last_offset + 1),
                replace(true, last_sequence=true.last_sequence + 1),
                replace(true, producer_epoch=true.producer_epoch + 1),
                replace(true, producer_id=99),
                replace(true, current_txn_first_offset=segment.batches[-1].header.last_offset + 5),
            ]
        )
    )
    _, producers = segment.follow(entries=[false if e is true else e for e in segment.entries])
    assert producers.wrong_entries().count >= 1
    _, producers = segment.follow(entries=[*segment.entries, true])
    assert producers.wrong_entries().count >= 1


def test_an_open_transaction_may_not_be_forgotten_an_idle_producer_may() -> None:
    log = PlainLog()
    log.data(1, 1, transactional=True)
    log.data(11, 1, transactional=False)
    _, producers = Segment(log.batches, 0, [], []).follow()
    assert producers.wrong_entries().first == "producer 1 is missing, its transaction began at offset 0"
    assert producers.wrong_entries().count == 1


def test_a_producer_that_did_not_write_here_was_last_seen_before() -> None:
    quiet = ProducerEntry(7, 0, 3, 90, 0, 0, -1, 80)
    log = PlainLog(offset=100)
    log.plain(5)
    assert Segment(log.batches, 100, [], [quiet]).follow()[1].wrong_entries().count == 0
    for lie in (replace(quiet, last_offset=102), replace(quiet, current_txn_first_offset=101)):
        assert Segment(log.batches, 100, [], [lie]).follow()[1].wrong_entries().count == 1


def test_sequences_wrap_around() -> None:
    log = PlainLog()
    log.producers[1] = Producer(sequence=2**31 - 2)
    log.data(1, 5, transactional=False)
    entry = log.producers[1].entry
    assert entry is not None
    assert entry.last_sequence == 2
    assert Segment(log.batches, 0, [], [entry]).follow()[1].wrong_entries().count == 0


def test_more_producers_than_any_broker_keeps_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_consistency, "MAX_PRODUCERS", 5)
    log = PlainLog()
    for producer_id in range(6):
        log.data(producer_id, 1, transactional=True)
    log.data(6, 1, transactional=True)
    transactions, producers = Segment(log.batches, 0, [], []).follow(size=6)
    for ask in (transactions.wrong_entries, transactions.missing, producers.wrong_entries):
        with pytest.raises(FormatError, match="more than 5 producers"):
            ask()
    assert not transactions.open


def test_an_index_without_entries_is_an_array_without_rows() -> None:
    transactions, producers = Segment([batch(0)], 0, [], []).follow()
    assert np.array_equal(
        [transactions.wrong_entries().count, transactions.missing().count, producers.wrong_entries().count], [0] * 3
    )
