"""Whose turn it is: which partition a batch claims next, and when it hands on the one that it holds.

Without an exhausted quota a batch finishes the most urgent partition, then takes the next. Under one, with fairness on,
it hands its partition on after a segment if another that it could claim has waited longer. Such turns alternate:

    handed on by a partition claimed for its urgency   -> the one that has waited longest
    handed on by a partition claimed for its wait      -> the most urgent one, but for the one just handed on

So no partition starves however urgent another is, the most urgent one still gets every second turn, and partitions of
equal urgency take turns in a circle. What was handed on is claimed again at once only if nothing else is left to claim.
"""

from collections.abc import Set
from typing import Final

from include.tiering.model.ids import TopicIdPartition
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.runs.contract import ClaimOrder, Lease, Placement, WorkStore

EXHAUSTED_SECONDS: Final = 0.05
"""Waits of one lease that add up to less say nothing of a quota. It also bounds how often a partition is handed on."""

_AFTER: Final = {
    ClaimOrder.URGENCY: ClaimOrder.LONGEST_WAIT,
    ClaimOrder.LONGEST_WAIT: ClaimOrder.URGENCY,
}


class Turns:
    """Claims for one batch. `excluded` are partitions that the batch may not take now."""

    def __init__(
        self, work: WorkStore, run_id: str, batch_id: str, *, lease_ms: int, placement: Placement | None, fairness: bool
    ) -> None:
        self._work = work
        self._run_id = run_id
        self._batch_id = batch_id
        self._lease_ms = lease_ms
        self._placement = placement
        self._fairness = fairness
        self._order = ClaimOrder.URGENCY
        self._handed_on: frozenset[TopicIdPartition] = frozenset()
        self._taking_turns = False

    def claim(self, excluded: Set[TopicIdPartition]) -> Lease | None:
        """The lease of the next turn; None if there is nothing to claim now. Raises what `WorkStore.claim` raises."""
        handed_on, self._handed_on = self._handed_on, frozenset()
        if handed_on:
            lease = self._claim(excluded | handed_on)
            if lease is not None:
                self._taking_turns = True
                return lease
        self._taking_turns = False
        self._order = ClaimOrder.URGENCY
        return self._claim(excluded)

    def hand_on(self, lease: Lease, limiter: ByteLimiter, excluded: Set[TopicIdPartition]) -> bool:
        """Whether this lease is to be given back now; `limiter` is the one that was used since it was claimed."""
        if not self._fairness or limiter.waited_seconds < EXHAUSTED_SECONDS:
            return False
        if not self._work.waits_longer(lease, exclude=excluded, placement=self._placement):
            return False
        self._handed_on = frozenset({lease.replica_id.topic_id_partition})
        self._order = _AFTER[self._order]
        return True

    @property
    def is_taking_turns(self) -> bool:
        """The lease before this one was handed on: this one will be soon."""
        return self._taking_turns

    def _claim(self, excluded: Set[TopicIdPartition]) -> Lease | None:
        return self._work.claim(
            self._run_id,
            self._batch_id,
            lease_ms=self._lease_ms,
            exclude=excluded,
            placement=self._placement,
            order=self._order,
        )
