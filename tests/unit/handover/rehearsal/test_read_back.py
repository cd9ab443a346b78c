"""What is said of records that are not what they were."""

from collections.abc import Sequence
from dataclasses import replace

from include.tiering.broker_process.sample import bases_of, sample_of
from include.tiering.handover.rehearsal import compared, counted, first_kept, lost_between
from include.tiering.model.segments import SeenRecord, segment_digests
from tests.doubles.segments import replica

NOW_MS = 1_000_000
SAMPLE = sample_of(replica([10, 20, 30]), 100)


def records(offsets: Sequence[int], value: bytes = b"value") -> list[SeenRecord]:
    return [SeenRecord(offset, False, 7, None, value) for offset in offsets]


def test_each_segment_has_a_digest_of_its_own() -> None:
    before = segment_digests(records(range(25)), bases_of(SAMPLE))
    assert {base: digest.records for base, digest in before.items()} == {0: 10, 10: 10, 20: 5}
    assert segment_digests(records(range(10, 20)), bases_of(SAMPLE)) == {10: before[10]}


def test_bytes_are_counted_segment_by_segment_and_all_of_them_in_the_end() -> None:
    done: list[int] = []
    sizes = [segment.size_bytes for segment in SAMPLE.segments]
    reading = counted(iter(records([3, 12, 13])), SAMPLE, done.append)
    assert next(reading).offset == 3
    assert done == []
    assert next(reading).offset == 12
    assert done == sizes[:1]
    assert [record.offset for record in reading] == [13]
    assert (done[0], sum(done)) == (sizes[0], sum(sizes))
    assert list(counted([], SAMPLE, done.append)) == []
    assert sum(done) == 2 * sum(sizes)


def test_the_same_records_are_equal() -> None:
    digests = segment_digests(records(range(30)), bases_of(SAMPLE))
    assert compared(SAMPLE, digests, digests, 0).is_equal
    assert compared(SAMPLE, {}, {}, 0).is_equal, "a segment may hold nothing for a consumer"


def test_another_value_and_a_record_too_few_are_named_by_segment() -> None:
    before = segment_digests(records(range(30)), bases_of(SAMPLE))
    after = segment_digests([*records(range(10), b"other"), *records(range(10, 29))], bases_of(SAMPLE))
    assert compared(SAMPLE, before, after, 0).differences == (
        "offsets 0..9: 10 records before, 10 afterwards, not equal",
        "offsets 20..29: 10 records before, 9 afterwards, not equal",
    )
    gone = compared(SAMPLE, before, {base: digest for base, digest in before.items() if base != 10}, 0)
    assert gone.differences == ("offsets 10..19: 10 records before, 0 afterwards, not equal",)
    assert gone.records == 20


def test_what_expired_meanwhile_is_not_compared() -> None:
    before = segment_digests(records(range(30)), bases_of(SAMPLE))
    after = {base: digest for base, digest in before.items() if base >= 10}
    assert compared(SAMPLE, before, after, 10).is_equal


def test_the_rest_of_a_segment_that_was_cut_is_compared() -> None:
    before = segment_digests(records(range(5, 30)), bases_of(SAMPLE))
    after = segment_digests([*records(range(5, 9)), *records(range(10, 30))], bases_of(SAMPLE))
    assert compared(SAMPLE, before, before, 5).is_equal
    assert compared(SAMPLE, before, after, 5).differences == (
        "offsets 0..9: 5 records before, 4 afterwards, not equal",
    )


def kept_from(log_start: int = 0, *, retention_ms: int = -1, retention_bytes: int = -1) -> int:
    return first_kept(SAMPLE, log_start, retention_ms=retention_ms, retention_bytes=retention_bytes, now_ms=NOW_MS)


def test_retention_lets_the_oldest_go_and_never_the_active_one() -> None:
    """Segments of 10, 20 and 30 bytes, with records up to the times 0, 1,000 and 2,000."""
    assert (kept_from(), kept_from(5)) == (0, 5)
    assert kept_from(retention_ms=NOW_MS) == 0, "just kept"
    assert kept_from(retention_ms=NOW_MS - 1) == 10
    assert kept_from(retention_ms=0) == 20
    assert [kept_from(retention_bytes=limit) for limit in (60, 51, 50, 31, 30, 0)] == [0, 0, 10, 10, 20, 20]
    assert kept_from(10, retention_bytes=30) == 20
    assert kept_from(retention_ms=NOW_MS - 1, retention_bytes=60) == 10


def test_an_empty_partition_keeps_everything() -> None:
    (active,) = replica([0]).segments
    empty = replace(SAMPLE, segments=(replace(active, base_offset=7, end_offset=6),), log_start_offset=7)
    assert first_kept(empty, 7, retention_ms=0, retention_bytes=0, now_ms=NOW_MS) == 7
    assert compared(empty, {}, {}, 7).is_equal


def test_what_went_without_a_reason_is_lost() -> None:
    first = "offsets 0..9: gone, the log start is 10"
    assert lost_between(SAMPLE, 0, 10, kept_from=0) == (first,)
    assert lost_between(SAMPLE, 0, 10, kept_from=10) == ()
    assert lost_between(SAMPLE, 0, 20, kept_from=10) == ("offsets 10..19: gone, the log start is 20",)
    assert lost_between(SAMPLE, 0, 0, kept_from=0) == ()
    assert lost_between(SAMPLE, 5, 10, kept_from=5) == (first,), "the rest of a segment that was cut"
    assert lost_between(SAMPLE, 10, 10, kept_from=10) == ()
