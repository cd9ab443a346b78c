"""Whether a batch would end at once, and leases that end further ahead than they may last."""

import pytest

from include.tiering.errors import LeaseAheadError
from include.tiering.model.ownership import LeaseRole
from include.tiering.runs.contract import LeaseAhead, LeaseHolder, NoWork, require_no_lease_ahead, why_no_work
from tests.doubles.segments import partition_of


@pytest.mark.parametrize(
    ("has_work", "could_claim", "paused", "why"),
    [
        (False, True, {"orders"}, NoWork.DONE),
        (False, False, set(), NoWork.DONE),
        (True, True, set(), None),
        (True, False, {"orders"}, None),
        (True, False, set(), NoWork.HELD),
    ],
)
def test_a_batch_begins_if_it_could_claim_or_has_to_wait_for_a_pause(
    has_work: bool, could_claim: bool, paused: set[str], why: NoWork | None
) -> None:
    found = why_no_work(has_work=has_work, could_claim=lambda: could_claim, paused_topics=lambda: paused)
    assert found is why


def test_nothing_is_asked_of_a_batch_without_work() -> None:
    def nobody_asks() -> bool:
        raise AssertionError

    assert why_no_work(has_work=False, could_claim=nobody_asks, paused_topics=list) is NoWork.DONE


def leases(number: int) -> list[LeaseAhead]:
    holder = LeaseHolder("run-1", "run-1/0", 1, 1_700_000_000_000, 7)
    return [LeaseAhead(partition_of("orders", each), LeaseRole.COPY, holder) for each in range(number)]


def test_no_lease_ahead_is_said() -> None:
    assert require_no_lease_ahead([]) == "no lease ends further ahead than it may last"


@pytest.mark.parametrize(("number", "named", "more"), [(1, 1, None), (5, 5, None), (6, 5, "and 1 more")])
def test_five_leases_ahead_are_named(number: int, named: int, more: str | None) -> None:
    with pytest.raises(LeaseAheadError) as error:
        require_no_lease_ahead(leases(number))
    sentences = str(error.value).split("; ")
    assert [sentence.split(":")[0] for sentence in sentences[:named]] == [f"orders-{each}" for each in range(named)]
    assert sentences[named:] == ([] if more is None else [more])
    assert "copy of batch run-1/0 of run run-1 ends at 2023-11-14 22:13:20 UTC" in sentences[0]
