"""Handovers of topics to their brokers: the step of each, the configs that it must restore, and which are forgotten.

A handover is independent of the process that drives it. Its step, the old value of every config that it overrides
and the offsets that it seeds are stored before anything depends on them. One process drives it at a time, under a lease
by the database's clock. The driver shows the token of that lease with every change that it makes to the handover.

A handover is *forgotten* if no process continues it for too long while it is parked, or while configs of its topic may
have values that only a handover needs. Of a parked handover's topic the platform copies nothing, but the brokers delete
records by retention, including records that were never copied.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.handover.checks import CheckResult
from include.tiering.handover.rules import HandoverState, HandoverStep, RetentionOrder, is_before
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.runs.deletion_run import Approval
from include.tiering.units import format_duration

WATCH_DAG_ID: Final = "tiering_handover_watch"
"""The DAG of Airflow that fails if a handover is forgotten."""


@dataclass(frozen=True, slots=True)
class LocalRetention:
    """Local retention at the end of a handover. For None the topic has its old value at the end."""

    local_retention_ms: int | None = None
    local_retention_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Handover:
    """One handover of one topic. Times are the database's.

    While ACTIVE or STOPPED, `step` is the next step, or the step to be repeated. `detail` is the text of the last
    change of step or state, such as why the handover stopped; it may be empty. `plan_hash` is the hash of the plan that
    was proposed for approval; `approval` is None until a person approves that plan. `driven_until_ms` is the end
    (exclusive) of the newest lease to drive the handover, 0 before the first lease and after the newest one was
    released. `retention_order` is chosen when the handover begins, and is kept until its end.
    """

    handover_id: Uuid
    topic_id: Uuid
    topic: str
    step: HandoverStep
    state: HandoverState
    wanted: LocalRetention
    author: str
    detail: str = ""
    plan_hash: str | None = None
    approval: Approval | None = None
    driver: str | None = None
    driven_until_ms: int = 0
    began_at_ms: int = 0
    updated_at_ms: int = 0
    retention_order: RetentionOrder = RetentionOrder.LOCAL_FIRST

    @property
    def run_id(self) -> str:
        """The run id with which the step `fence` takes partition leases. It is the same for all drivers."""
        return f"handover:{self.handover_id}"


@dataclass(frozen=True, slots=True)
class RetentionOverride:
    """One config of the topic that the handover changes.

    `old_value` is None if the topic had no value of its own. `restored`: the brokers showed the final value.
    """

    key: str
    old_value: str | None
    set_value: str
    restored: bool = False


@dataclass(frozen=True, slots=True)
class SeededPartition:
    """The offsets of one partition that are handed over, both ends inclusive.

    If none are handed over, `end_offset` is `start_offset` - 1. `log_start_offset`, `leader` and `leader_epoch` are the
    broker's values when the offsets were decided; a resume at the step `watch` replaces `log_start_offset`. The records
    from the log start to `compared_offset` (exclusive) were compared: brokers served them from remote storage as they
    had been copied. Records in batches that are too large to decode were not compared.
    """

    topic_id_partition: TopicIdPartition
    start_offset: int
    end_offset: int
    log_start_offset: int
    leader: int
    leader_epoch: int
    compared_offset: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the partition is handed over."""
        return self.end_offset < self.start_offset


@dataclass(frozen=True, slots=True)
class Drive:
    """The lease under which one process drives one handover, until it expires or is released."""

    handover_id: Uuid
    driver: str
    token: int
    expires_at_ms: int


class HandoverStore(Protocol):
    """Handovers of one cluster. Every change is one transaction; its times are by the database's clock."""

    def now_ms(self) -> int:
        """Return the database's time."""
        ...

    def begin(self, handover_id: Uuid, topic_id: Uuid, topic: str, wanted: LocalRetention, *, author: str) -> Handover:
        """Store a new handover: ACTIVE, at the first step. Idempotent for the same id and topic.

        Raises:
            StateConflictError: the topic has another handover that has not ended, or another topic's handover has this
                id.
        """
        ...

    def handover(self, handover_id: Uuid) -> Handover:
        """Return this handover.

        Raises:
            StateConflictError: there is no handover with this id.
        """
        ...

    def latest(self, topic_id: Uuid) -> Handover | None:
        """Return the handover of this topic that has not ended, else the newest one; None if there never was one."""
        ...

    def open_handovers(self) -> Sequence[Handover]:
        """Return the handovers that have not ended, ordered by topic."""
        ...

    def drive(self, handover_id: Uuid, driver: str, *, lease_ms: int) -> Drive | None:
        """Take the lease to drive a handover. The same driver may take it again, with a new token.

        Returns:
            The lease; None while another driver has an unexpired lease (one that ends too far ahead is ignored).

        Raises:
            StateConflictError: there is no such handover.
        """
        ...

    def renew(self, drive: Drive, *, lease_ms: int) -> Drive:
        """Prolong the lease to `lease_ms` from now.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
        """
        ...

    def release(self, drive: Drive) -> None:
        """Release the lease. Without effect if it was lost."""
        ...

    def advance(
        self, drive: Drive, step: HandoverStep, *, expected: HandoverStep, detail: str = "", event: str | None = None
    ) -> Handover:
        """Set the step if it is `expected`, and record an event. If the handover is at `step` already, change nothing.

        Args:
            drive: the lease.
            step: the new step.
            expected: the step that the handover must have now.
            detail: replaces the detail of the handover.
            event: text of the event; without it, the text says which step is done and which step is next.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
            StateConflictError: the handover is at neither of the two steps.
        """
        ...

    def set_state(self, drive: Drive, state: HandoverState, *, detail: str) -> Handover:
        """Set the state and its detail; record an event if the state changes.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
            StateConflictError: the handover has ended in another state.
        """
        ...

    def save_overrides(self, drive: Drive, overrides: Sequence[RetentionOverride]) -> Sequence[RetentionOverride]:
        """Store the old values of configs before any of them is changed.

        A key without a stored override, or whose override was restored, gets the given override. If the stored override
        was not restored, it is replaced only if the given old value is neither the stored old value nor the value that
        the handover sets: then the config was set from outside since.

        Returns:
            All retention overrides of the handover, ordered by key.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
        """
        ...

    def overrides(self, handover_id: Uuid) -> Sequence[RetentionOverride]:
        """Return all retention overrides of the handover, ordered by key."""
        ...

    def overrides_restored(self, drive: Drive, keys: Collection[str]) -> None:
        """Mark the overrides of these configs as restored. Keys without an override are ignored.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
        """
        ...

    def save_seed(self, drive: Drive, seed: Sequence[SeededPartition]) -> None:
        """Replace all seeded partitions of the handover.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
        """
        ...

    def seed(self, handover_id: Uuid) -> Sequence[SeededPartition]:
        """Return the seeded partitions, ordered by partition number."""
        ...

    def note_compared(self, drive: Drive, partition: int, offset: int) -> None:
        """Raise `compared_offset` (exclusive) of a seeded partition; a lower offset changes nothing.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
        """
        ...

    def claim(
        self, drive: Drive, partition: TopicIdPartition, role: LeaseRole, *, lease_ms: int
    ) -> PartitionLease | None:
        """Take the lease of a partition in a role, so that every older token of that lease is refused from then on.

        A partition lease that another driver of this handover took is taken over. `WorkStore.release` releases it.

        Returns:
            The partition lease; None while a batch has an unexpired one.

        Raises:
            LeaseLostError: the lease of the handover was released, or was taken again, so that it has a new token.
        """
        ...

    def propose(self, drive: Drive, plan_hash: str) -> Handover:
        """Store the hash of a plan for approval. If it differs from the stored hash, the approval is removed.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
        """
        ...

    def approve(self, handover_id: Uuid, plan_hash: str, *, author: str) -> Handover:
        """Store the approval of a plan and record an event. Idempotent: the first approval of a plan stays.

        No lease is needed, as the person who approves does not drive the handover.

        Raises:
            StateConflictError: another plan was proposed, no plan was, or there is no such handover.
        """
        ...

    def record_checks(self, drive: Drive, step: HandoverStep, results: Sequence[CheckResult]) -> None:
        """Replace the results of the checks of this step.

        Raises:
            LeaseLostError: the lease was released, or was taken again, so that it has a new token.
        """
        ...

    def checks(self, handover_id: Uuid, step: HandoverStep | None = None) -> Sequence[CheckResult]:
        """Return the results of one step's checks, in the order of `record_checks`, or of all steps in their order."""
        ...


ALONE_MS: Final = 5 * 60 * 1000
"""Milliseconds without a lease after which the driver counts as dead: two tasks of a DAG run follow each other sooner.
"""
PERSON_MS: Final = 24 * 60 * 60 * 1000
"""Milliseconds for which a handover may wait for a person before it is reported."""


@dataclass(frozen=True, slots=True)
class ForgottenHandover:
    """A handover without progress.

    `since_ms`: time of its last change of step, state or plan, or of the end of its last lease if that is later and the
    lease was not released; at most the present time.
    """

    handover: Handover
    since_ms: int
    message: str


def forgotten_handovers(open_handovers: Iterable[Handover], now_ms: int) -> list[ForgottenHandover]:
    """Return the handovers that have no driver, may suspend retention or copies, and made no progress for too long.

    Too long means more than PERSON_MS if the handover is stopped, is parked or is at the step `approval`, otherwise
    more than ALONE_MS.
    """
    return [found for open_handover in open_handovers if (found := _forgotten(open_handover, now_ms)) is not None]


def _forgotten(handover: Handover, now_ms: int) -> ForgottenHandover | None:
    is_parked = handover.state is HandoverState.PARKED
    # A lease that ends later than ALONE_MS from now was taken while the clock was ahead, and is not valid.
    is_driven = now_ms < handover.driven_until_ms <= now_ms + ALONE_MS
    if not (handover.state.holds_overrides or is_parked) or is_driven:
        return None
    since_ms = min(now_ms, max(handover.driven_until_ms, handover.updated_at_ms))
    idle_ms = now_ms - since_ms
    needs_a_person = is_parked or handover.state is HandoverState.STOPPED or handover.step is HandoverStep.APPROVAL
    if idle_ms <= (PERSON_MS if needs_a_person else ALONE_MS):
        return None
    waits = "is parked" if is_parked else "waits for a person" if needs_a_person else "has no driver any more"
    meanwhile = (
        "the platform neither copies nor expires the topic"
        if is_parked
        else "its retention overrides may be in force, so that nothing of the topic expires"
    )
    why = f" ({handover.detail})" if handover.detail else ""
    return ForgottenHandover(
        handover,
        since_ms,
        f"the handover of {handover.topic} {waits}, at {handover.step} for {format_duration(idle_ms / 1000)}{why}, and"
        f" {meanwhile}. {ways_out(handover)}",
    )


def ways_out(handover: Handover) -> str:
    """Return the command that continues an open handover, and the option that gives the topic back, if one does."""
    resume = f"./tiering handover {handover.topic} --resume"
    if handover.state is HandoverState.PARKED:
        return f"{resume}, or --archive-again"
    return f"{resume}, or --undo" if is_before(handover.step, HandoverStep.WATCH) else resume
