"""Shares of a group: everything once, evenly by bytes, in order."""

from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.segments import Depth, RemoteLogSegmentId
from include.tiering.verification.verify_segments import ToMeasure
from spark_jobs.verification_measures import spread
from tests.doubles.segments import partition_of, uuid


def to_measure(number: int, planned_bytes: int) -> ToMeasure:
    return ToMeasure(RemoteLogSegmentId(partition_of(), uuid(number)), None, Depth.DEEP, planned_bytes)


@given(st.lists(st.integers(1, 10**9), max_size=60), st.integers(1, 12))
def test_everything_is_in_one_share_and_no_share_carries_much_more(sizes: list[int], tasks: int) -> None:
    wanted = [to_measure(*numbered) for numbered in enumerate(sizes)]
    shares = spread(wanted, tasks)
    assert sorted((one for share in shares for one in share), key=wanted.index) == wanted
    assert len(shares) == min(tasks, len(wanted))
    for share in shares:
        assert [wanted.index(one) for one in share] == sorted(wanted.index(one) for one in share)
    loads = [sum(one.planned_bytes for one in share) for share in shares]
    if len(wanted) >= tasks:
        assert max(loads) - min(loads) <= max(sizes)
