"""What is said of records that are not what they were."""

from collections.abc import Sequence

from include.tiering.model.record_digest import SeenRecord
from include.tiering.rehearsal.read_back import compared, lost_between, segment_digests
from include.tiering.rehearsal.sample import PartitionSample, bases_of, sample_of
from tests.doubles.replicas import replica

NOW_MS = 1_000_000
SAMPLE = sample_of(replica([1, 1, 1]), 10)


def records(offsets: Sequence[int], value: bytes = b"value") -> list[SeenRecord]:
    return [SeenRecord(offset, False, 7, None, value) for offset in offsets]


def test_each_segment_has_a_digest_of_its_own() -> None:
    before = segment_digests(records(range(25)), bases_of(SAMPLE))
    assert {base: digest.records for base, digest in before.items()} == {0: 10, 10: 10, 20: 5}
    assert segment_digests(records(range(10, 20)), bases_of(SAMPLE)) == {10: before[10]}


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


def test_what_expired_meanwhile_is_not_compared_and_not_lost() -> None:
    before = segment_digests(records(range(30)), bases_of(SAMPLE))
    after = {base: digest for base, digest in before.items() if base >= 10}
    assert compared(SAMPLE, before, after, 10).is_equal
    assert lost_between(SAMPLE, 0, 10, retention_ms=1_000, now_ms=NOW_MS) == ()
    assert lost_between(SAMPLE, 0, 0, retention_ms=-1, now_ms=NOW_MS) == ()


def test_what_went_without_a_reason_is_lost() -> None:
    said = ("offsets 0..9: gone, the log start is 10",)
    assert lost_between(SAMPLE, 0, 10, retention_ms=-1, now_ms=NOW_MS) == said
    assert lost_between(SAMPLE, 0, 10, retention_ms=NOW_MS + 1, now_ms=NOW_MS) == said, "within retention"
    assert len(lost_between(SAMPLE, 0, 30, retention_ms=1_000, now_ms=NOW_MS)) == 1, "active segments do not expire"


def test_a_log_start_within_a_segment_loses_nothing() -> None:
    cut = PartitionSample(SAMPLE.replica_id, SAMPLE.segments, 5, SAMPLE.leader_epochs, 0)
    assert lost_between(cut, 5, 5, retention_ms=-1, now_ms=NOW_MS) == ()
