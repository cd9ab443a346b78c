"""Handovers of topics to their brokers: the step of each, the configs that it must restore, and which are forgotten.

A handover is independent of the process that drives it. Its step, the old value of every config that it changes and
the offsets that it seeds are stored before anything depends on them. One process drives it at a time, under a lease by
the database's clock, and shows the token of that lease with every change. The driver of an active handover without a
valid lease has died.

A handover is forgotten if no process continues it while configs of its topic have values that only a handover needs,
or while the topic has no owner: brokers then delete by retention what is not copied.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.handover.checks import CheckResult
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.runs.deletion_run import Approval
from include.tiering.units import format_duration


@dataclass(frozen=True, slots=True)
class LocalRetention:
    """Local retention at the end of a handover. None keeps, or restores, the value that the topic had."""

    local_retention_ms: int | None = None
    local_retention_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Handover:
    """One handover of one topic. Times are the database's.

    `step` is the next step, or one to be repeated. `detail` says in a sentence why it last waited or stopped.
    `plan_hash` is the hash of the plan that was proposed for approval, `approval` its approval. `driven_until_ms` is
    the end (exclusive) of the newest lease to drive it, 0 once that was released.
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

    @property
    def run_id(self) -> str:
        """The run id of its partition leases, the same for all its drivers."""
        return f"handover:{self.handover_id}"


@dataclass(frozen=True, slots=True)
class RetentionOverride:
    """One config of the topic that the handover changes.

    `old_value` is None if the topic had no value of its own. `restored`: the brokers confirmed its final value.
    """

    key: str
    old_value: str | None
    set_value: str
    restored: bool = False


@dataclass(frozen=True, slots=True)
class SeededPartition:
    """The offsets of one partition that are handed over. Inclusive; `end_offset` is `start_offset` - 1 without any.

    `log_start_offset`, `leader` and `leader_epoch` are the broker's values when this was decided. Records below
    `compared_offset` (exclusive) were compared: brokers served from remote storage what had been copied.
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
    """Handovers of one cluster. Every change is one transaction, dated by the database's clock."""

    def now_ms(self) -> int:
        """Return the database's time."""
        ...

    def begin(self, handover_id: Uuid, topic_id: Uuid, topic: str, wanted: LocalRetention, *, author: str) -> Handover:
        """Store a new handover: ACTIVE, at the first step. Idempotent for the same id and topic.

        Raises:
            StateConflictError: the topic has another handover that has not ended.
        """
        ...

    def handover(self, handover_id: Uuid) -> Handover:
        """Return this handover.

        Raises:
            StateConflictError: there is none with this id.
        """
        ...

    def latest(self, topic_id: Uuid) -> Handover | None:
        """Return the newest handover of this topic, ended or not."""
        ...

    def open_handovers(self) -> Sequence[Handover]:
        """Return the handovers that have not ended, ordered by topic."""
        ...

    def drive(self, handover_id: Uuid, driver: str, *, lease_ms: int) -> Drive | None:
        """Take the lease to drive a handover. The same driver may take it again, with a new token.

        Returns:
            The lease; None while another driver has an unexpired one.

        Raises:
            StateConflictError: there is no such handover.
        """
        ...

    def renew(self, drive: Drive, *, lease_ms: int) -> Drive:
        """Prolong the lease to `lease_ms` from now.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
        """
        ...

    def release(self, drive: Drive) -> None:
        """Release the lease. Without effect if it was lost."""
        ...

    def advance(
        self, drive: Drive, step: HandoverStep, *, expected: HandoverStep, detail: str = "", event: str | None = None
    ) -> Handover:
        """Set the step if it is `expected`, and record an event. Idempotent: at `step` already, nothing changes.

        Args:
            drive: the lease.
            step: the new step.
            expected: the step that it must have now.
            detail: replaces the detail of the handover.
            event: text of the event; without it, which step is done and which one is next.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
            StateConflictError: it is at neither of the two steps.
        """
        ...

    def set_state(self, drive: Drive, state: HandoverState, *, detail: str) -> Handover:
        """Set the state and its detail; record an event if the state changes.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
            StateConflictError: it has ended in another state.
        """
        ...

    def save_overrides(self, drive: Drive, overrides: Sequence[RetentionOverride]) -> Sequence[RetentionOverride]:
        """Store the old values of configs before any of them is changed.

        For a key that is stored and not restored, a different old value replaces the stored one: it was set from
        outside since. The value that the handover itself sets does not.

        Returns:
            All retention overrides of the handover, ordered by key.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
        """
        ...

    def overrides(self, handover_id: Uuid) -> Sequence[RetentionOverride]:
        """Return all retention overrides of the handover, ordered by key."""
        ...

    def overrides_restored(self, drive: Drive, keys: Collection[str]) -> None:
        """Store that these configs have their final values. Keys without an override are ignored.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
        """
        ...

    def save_seed(self, drive: Drive, seed: Sequence[SeededPartition]) -> None:
        """Replace all seeded partitions of the handover.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
        """
        ...

    def seed(self, handover_id: Uuid) -> Sequence[SeededPartition]:
        """Return the seeded partitions, ordered by number."""
        ...

    def note_compared(self, drive: Drive, partition: int, offset: int) -> None:
        """Raise `compared_offset` (exclusive) of a seeded partition; a lower offset changes nothing.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
        """
        ...

    def claim(
        self, drive: Drive, partition: TopicIdPartition, role: LeaseRole, *, lease_ms: int
    ) -> PartitionLease | None:
        """Take the lease of a partition in a role, so that every older token of it is refused from then on.

        A lease that another driver of this handover took is taken over. `WorkStore.release` releases it.

        Returns:
            The lease; None while a batch has it.

        Raises:
            LeaseLostError: another driver took the lease of the handover, or it was released.
        """
        ...

    def propose(self, drive: Drive, plan_hash: str) -> Handover:
        """Store a plan for approval. A plan with another hash than before removes the approval.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
        """
        ...

    def approve(self, handover_id: Uuid, plan_hash: str, *, author: str) -> Handover:
        """Store the approval of a plan and record an event. Idempotent: the first approval of a plan stays.

        It needs no lease, as the person who approves does not drive the handover.

        Raises:
            StateConflictError: another plan, or none, was proposed.
        """
        ...

    def record_checks(self, drive: Drive, step: HandoverStep, results: Sequence[CheckResult]) -> None:
        """Replace the results of the checks of this step.

        Raises:
            LeaseLostError: another driver took the lease, or it was released.
        """
        ...

    def checks(self, handover_id: Uuid, step: HandoverStep | None = None) -> Sequence[CheckResult]:
        """Return the results of the checks of one step, or of all steps, in the order in which they were made."""
        ...


ALONE_MS: Final = 5 * 60 * 1000
"""A driver that has had no lease for longer has died: two tasks of a DAG run follow each other sooner."""
PERSON_MS: Final = 24 * 60 * 60 * 1000
"""How long a handover may wait for a person before it is reported."""


@dataclass(frozen=True, slots=True)
class ForgottenHandover:
    """A handover without progress. `since_ms`: time of its last change or lease, by the database's clock."""

    handover: Handover
    since_ms: int
    message: str


def forgotten_handovers(open_handovers: Iterable[Handover], now_ms: int) -> list[ForgottenHandover]:
    """Return handovers that suspend the topic's retention or copies and have made no progress for too long.

    Too long is more than PERSON_MS if the handover waits for a person or is parked, otherwise more than ALONE_MS.
    """
    return [found for open_handover in open_handovers if (found := _forgotten(open_handover, now_ms)) is not None]


def _forgotten(handover: Handover, now_ms: int) -> ForgottenHandover | None:
    is_parked = handover.state is HandoverState.PARKED
    # A lease that ends much later was taken while the clock was ahead: its driver has no valid lease.
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
        "the topic is neither copied nor expired"
        if is_parked
        else "its retention overrides are in force: nothing of the topic expires"
    )
    ways_out = f"./tiering handover {handover.topic} --resume" + ("" if is_parked else ", or --undo")
    return ForgottenHandover(
        handover,
        since_ms,
        f"the handover of {handover.topic} {waits}, at {handover.step} for {format_duration(idle_ms / 1000)}, and"
        f" {meanwhile}. {ways_out}",
    )
