"""Handovers of topics to their brokers: how far each has come, what it has to put back, and which are forgotten.

A handover outlives whoever drives it. Its step, the old value of every config that it changes and the offsets that it
seeds are stored before anything follows from them. One process drives it at a time, under a lease by the database's
clock with a token that every change shows; a handover that goes on and has no driver is somebody's who died.

A handover is forgotten if nobody carries it on while configs of its topic stand at values that only a handover wants,
or while the topic is nobody's: what is not copied then goes with the brokers' retention.
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
    """What local retention is to become at the end; None leaves, or puts back, what the topic had."""

    local_retention_ms: int | None = None
    local_retention_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Handover:
    """One handover of one topic. Times are the database's.

    `step` is to be done next, or again. `detail` says in a sentence what it last waited or stopped for. `plan_hash` is
    that of what was put before a person, `approval` who agreed to it. `driven_until_ms`: the end of the newest lease to
    drive it, 0 once it was given back.
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
        """Under which it leases partitions: the same whoever drives it."""
        return f"handover:{self.handover_id}"


@dataclass(frozen=True, slots=True)
class RetentionOverride:
    """One config of the topic that the handover changes. None: the topic had no value of its own.

    `restored`: the brokers confirmed that it has its final value again.
    """

    key: str
    old_value: str | None
    set_value: str
    restored: bool = False


@dataclass(frozen=True, slots=True)
class SeededPartition:
    """What is handed over of one partition. Offsets are inclusive; `end_offset` is `start_offset` - 1 if nothing is.

    `log_start_offset`, `leader` and `leader_epoch` are the broker's when this was decided. Below `compared_offset`
    (exclusive) brokers served from remote storage what was copied.
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
        return self.end_offset < self.start_offset


@dataclass(frozen=True, slots=True)
class Drive:
    """The right to carry one handover on, until it expires or is given back."""

    handover_id: Uuid
    driver: str
    token: int
    expires_at_ms: int


class HandoverStore(Protocol):
    """Handovers of one cluster. Every change is one transaction, dated by the database's clock."""

    def now_ms(self) -> int:
        """The database's clock."""
        ...

    def begin(self, handover_id: Uuid, topic_id: Uuid, topic: str, wanted: LocalRetention, *, author: str) -> Handover:
        """Begin at the first step, ACTIVE. The same id with the same topic is harmless and changes nothing.

        Raises:
            StateConflictError: the topic has another handover that has not ended.
        """
        ...

    def handover(self, handover_id: Uuid) -> Handover:
        """Raises StateConflictError if there is none."""
        ...

    def latest(self, topic_id: Uuid) -> Handover | None:
        """The newest handover of this topic, ended or not."""
        ...

    def open_handovers(self) -> Sequence[Handover]:
        """Those that have not ended, by topic."""
        ...

    def drive(self, handover_id: Uuid, driver: str, *, lease_ms: int) -> Drive | None:
        """The right to carry it on; None while another driver has it. The same driver takes its own over."""
        ...

    def renew(self, drive: Drive, *, lease_ms: int) -> Drive:
        """Prolong. Raises LeaseLostError: somebody else drives, or it was given back."""
        ...

    def release(self, drive: Drive) -> None:
        """Give it back; harmless if it was lost."""
        ...

    def advance(
        self, drive: Drive, step: HandoverStep, *, expected: HandoverStep, detail: str = "", event: str | None = None
    ) -> Handover:
        """Compare-and-set of the step, with an event. Repeating a change that was made is harmless.

        Raises:
            LeaseLostError
            StateConflictError: it is at neither of the two steps.
        """
        ...

    def set_state(self, drive: Drive, state: HandoverState, *, detail: str) -> Handover:
        """Change the state, with an event unless it is the same one.

        Raises:
            LeaseLostError
            StateConflictError: it has ended.
        """
        ...

    def save_overrides(self, drive: Drive, overrides: Sequence[RetentionOverride]) -> Sequence[RetentionOverride]:
        """Store old values, before any of these configs is changed; returns all retention overrides, by key.

        A key that is stored and not restored takes the value of a later look, which somebody has set since; unless that
        is our own value. Raises LeaseLostError.
        """
        ...

    def overrides(self, handover_id: Uuid) -> Sequence[RetentionOverride]:
        """By key."""
        ...

    def overrides_restored(self, drive: Drive, keys: Collection[str]) -> None:
        """Note that these configs have their final values. Raises LeaseLostError."""
        ...

    def save_seed(self, drive: Drive, seed: Sequence[SeededPartition]) -> None:
        """Replace what is handed over. Raises LeaseLostError."""
        ...

    def seed(self, handover_id: Uuid) -> Sequence[SeededPartition]:
        """By partition."""
        ...

    def note_compared(self, drive: Drive, partition: int, offset: int) -> None:
        """Raise `compared_offset` of a seeded partition; a lower one changes nothing. Raises LeaseLostError."""
        ...

    def claim(
        self, drive: Drive, partition: TopicIdPartition, role: LeaseRole, *, lease_ms: int
    ) -> PartitionLease | None:
        """Take the lease of a partition in a role, so that every older token of it is refused from now on; None while
        a batch holds it. What another driver of this handover held is taken over. `WorkStore` releases it.

        Raises:
            LeaseLostError
        """
        ...

    def propose(self, drive: Drive, plan_hash: str) -> Handover:
        """Put a plan before a person: one with another hash than before takes the approval away. LeaseLostError."""
        ...

    def approve(self, handover_id: Uuid, plan_hash: str, *, author: str) -> Handover:
        """Agree, with an event. The first approval of a plan stays. It needs no lease: a person is no driver.

        Raises:
            StateConflictError: another plan, or none, was put before anybody.
        """
        ...

    def record_checks(self, drive: Drive, step: HandoverStep, results: Sequence[CheckResult]) -> None:
        """Replace what the checks of this step said. Raises LeaseLostError."""
        ...

    def checks(self, handover_id: Uuid, step: HandoverStep | None = None) -> Sequence[CheckResult]:
        """Of one step, or of all, in the order in which they were made."""
        ...


ALONE_MS: Final = 5 * 60 * 1000
"""A driver that has been gone for longer died: between two tasks of a DAG run lies less."""
PERSON_MS: Final = 24 * 60 * 60 * 1000
"""How long a person may let a handover wait before somebody is told again."""


@dataclass(frozen=True, slots=True)
class ForgottenHandover:
    """`since_ms`: when anybody last did anything about it, by the database's clock. `message` is for a person."""

    handover: Handover
    since_ms: int
    message: str


def forgotten_handovers(open_handovers: Iterable[Handover], now_ms: int) -> list[ForgottenHandover]:
    """Those that ought to go on and have no driver, and those that wait for a person for too long."""
    return [found for open_handover in open_handovers if (found := _forgotten(open_handover, now_ms)) is not None]


def _forgotten(handover: Handover, now_ms: int) -> ForgottenHandover | None:
    is_parked = handover.state is HandoverState.PARKED
    # A lease that ends an hour ahead was taken by a clock that was ahead: nobody drives under it.
    is_driven = now_ms < handover.driven_until_ms <= now_ms + ALONE_MS
    if not (handover.state.holds_overrides or is_parked) or is_driven:
        return None
    since_ms = min(now_ms, max(handover.driven_until_ms, handover.updated_at_ms))
    idle_ms = now_ms - since_ms
    is_a_persons = is_parked or handover.state is HandoverState.STOPPED or handover.step is HandoverStep.APPROVAL
    if idle_ms <= (PERSON_MS if is_a_persons else ALONE_MS):
        return None
    waits = "is parked" if is_parked else "waits for a person" if is_a_persons else "has no driver any more"
    meanwhile = (
        "nobody copies or expires the topic" if is_parked else "its overrides hold: nothing of the topic expires"
    )
    ways_out = f"./tiering handover {handover.topic} --resume" + ("" if is_parked else ", or --undo")
    return ForgottenHandover(
        handover,
        since_ms,
        f"the handover of {handover.topic} {waits}, at {handover.step} for {format_duration(idle_ms / 1000)}, and"
        f" {meanwhile}. {ways_out}",
    )
