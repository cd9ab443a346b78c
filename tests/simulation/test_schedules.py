"""A fixed small set of seeds, and the seeds that once found something.

A seed means another schedule when the simulator or the product changes: those of FOUND are kept for what they found,
whose own test stands beside the product's other tests.
"""

from typing import Final

import pytest

from tests.simulation.schedule import run_schedule

SEEDS: Final = range(1, 61)
FOUND: Final = {
    6: "a copy that covers another one took it along, and less stayed than retention.bytes",
    100: "two processes of one batch took the lease from each other for ever",
    293: "a verification named a hole between segments that were expiring, and their partition stood still",
    300: "a handover waited for the leaders of a topic that was deleted",
    353: "an audit removed what brokers had stored of a topic whose owner no plan had recorded yet",
    355: "a divergence of the histories was named only when there was something to copy behind it",
    607: "a handover waited for what only a person can end: segments past our retention",
    1543: "a restore gave a fencing token a second time",
    2099: "an attempt lost its objects because the answer to its FINISHED was lost",
    2335: "a handover waited for what had expired here, and not at the broker",
    3277: "bytes below a log start, in a follower's segment that is still there, counted as local",
    11150: "a batch with a plan from before unclean elections copied behind replaced records, and hid the divergence",
    41385: "bytes of an old leader counted as local while the metadata log lagged",
    11544: "an audit went by a clock that was 400 days ahead, and removed what was a minute old",
    12768: "a copy that was planned by its age went as an abandoned one, without the proof that such a one needs",
    9012095: "a whole replacement was refused for ever where the new leader has other segments",
    9016611: "an attempt without objects stayed, as nothing could witness that it is the right store (the model's)",
    9017290: "of two open handovers of one name the old topic's was carried on each time",
    9104851: "a decision came behind a batch's last look, and the log start rose over what it follows",
    20013939: "a segment passed, and what a look had found while the store hid all was held against it (the model's)",
}


@pytest.mark.parametrize("first", SEEDS[::20])
def test_every_invariant_holds(first: int) -> None:
    for seed in range(first, first + 20):
        outcome = run_schedule(seed)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_holds(seed: int) -> None:
    outcome = run_schedule(seed)
    assert outcome.violation is None, f"seed {seed} ({FOUND[seed]}): {outcome.violation}"
