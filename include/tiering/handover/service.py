"""Begin, continue, approve, undo and inspect handovers of topics to their brokers, and set their metrics."""

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Final

from include.tiering.errors import PublicationRefusedError, StateConflictError, UnknownTopicError
from include.tiering.handover.checks import HandoverEvidence
from include.tiering.handover.contract import (
    ForgottenHandover,
    Handover,
    HandoverStore,
    LocalRetention,
    forgotten_handovers,
)
from include.tiering.handover.drive import archive_handover_again, carry_on, possible_undo, undo_handover
from include.tiering.handover.metrics import publish_handovers
from include.tiering.handover.ports import HandoverPorts
from include.tiering.handover.rules import HandoverStep, Undo, is_before
from include.tiering.handover.run_checks import gather
from include.tiering.kafka.cluster.contract import Brokers, TopicMetadata, known_topic
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.telemetry.metrics import MetricsRecorder, RunKind, ignore

_PROCESS: Final = secrets.token_hex(4)


class HandoverService:
    """Hand topics over to their brokers step by step. Needs the setting `cluster.bootstrap_servers`.

    Args:
        handovers: the stored handovers of this cluster.
        ports: builds what the steps work with; raises SettingError without bootstrap servers.
        brokers: connects to the brokers, from which the topic ids are read.
        require_free_broker_id: raises SettingError if a broker has the publisher's broker id.
        ownership: which database writes to the store.
        random_bytes: returns the given number of random bytes, for new handover ids.
    """

    def __init__(
        self,
        *,
        handovers: HandoverStore,
        ports: Callable[[], HandoverPorts],
        brokers: Callable[[], Brokers],
        require_free_broker_id: Callable[[], None],
        ownership: StoreOwnership,
        recorder: MetricsRecorder,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._handovers = handovers
        self._ports = ports
        self._brokers = brokers
        self._require_free_broker_id = require_free_broker_id
        self._ownership = ownership
        self._recorder = recorder
        self._random_bytes = random_bytes

    def topic_to_hand_over(self, topic: str) -> Uuid:
        """Return the id that the brokers have for this topic name.

        Raises:
            UnknownTopicError: the brokers have no topic of this name.
        """
        return known_topic(self._brokers(), topic).topic_id

    def begin(self, topic: str, wanted: LocalRetention, *, author: str) -> Handover:
        """Begin a new handover at the first step. No step is run yet.

        Args:
            topic: name of the topic; its id is read from the brokers.
            wanted: local retention at the end.
            author: name that is stored with the handover and in the event.

        Raises:
            StateConflictError: a handover of this topic has not ended.
            UnknownTopicError: the brokers have no topic of this name.
            SettingError: a broker has the publisher's broker id, or no bootstrap servers are set.
            ForeignStoreError: the store belongs to another database.
        """
        self._ownership.claim()
        self._require_free_broker_id()
        topic_id = self.topic_to_hand_over(topic)
        found = self._handovers.latest(topic_id)
        if found is not None and not found.state.has_ended:
            raise StateConflictError(
                f"a handover of {topic} is at {found.step} ({found.state}): ./tiering handover {topic} --resume"
                " continues it, --undo undoes it"
            )
        return self._handovers.begin(Uuid.random(self._random_bytes), topic_id, topic, wanted, author=author)

    def latest_of(self, topic: str) -> Handover | None:
        """Return the handover of this topic name that has not ended.

        Without an open handover, the newest one of the topic that has this name now is returned; None if that topic
        never had a handover. Two handovers of one name are open if the topic was deleted and created again while a
        handover of the older topic was open. Then the handover of the present topic is returned until it has ended, and
        the newest of the others after that.

        Raises:
            UnknownTopicError: no handover of this name is open, and the brokers have no topic of this name.
        """
        named = [open_handover for open_handover in self._handovers.open_handovers() if open_handover.topic == topic]
        if not named:
            return self._handovers.latest(self.topic_to_hand_over(topic))
        if len(named) == 1:
            return named[0]
        try:
            topic_id = self.topic_to_hand_over(topic)
        except UnknownTopicError:
            topic_id = None
        return max(named, key=lambda candidate: (candidate.topic_id == topic_id, candidate.began_at_ms))

    def carry_on(
        self,
        handover_id: Uuid,
        *,
        until: HandoverStep | None = None,
        resume: bool = False,
        driver: str | None = None,
        on_step: Callable[[Handover], None] = ignore,
        on_message: Callable[[str], None] = ignore,
    ) -> Handover:
        """Run steps until the handover ends, waits or stops; see `drive.carry_on`.

        Args:
            handover_id: the handover.
            until: the last step to run (inclusive); without it, all steps are run.
            resume: whether a STOPPED or PARKED handover continues.
            driver: name of the driver; without it, the name of this process.
            on_step: called before each step.
            on_message: called with each progress message.

        Raises:
            LeaseLostError: another process drives the handover.
            ForeignStoreError: the store belongs to another database.
        """
        self._ownership.require()
        return carry_on(
            self._ports(),
            handover_id,
            driver or _this_process(),
            until=until,
            resume=resume,
            on_step=on_step,
            on_message=on_message,
        )

    def approve(self, handover_id: Uuid, plan_hash: str, *, author: str) -> Handover:
        """Approve exactly this plan. Approving the same plan again changes nothing.

        Raises:
            StateConflictError: the handover has another plan, or no plan.
            ForeignStoreError: the store belongs to another database.
        """
        self._ownership.claim()
        return self._handovers.approve(handover_id, plan_hash, author=author)

    def undo(self, handover_id: Uuid, shown: Undo, *, on_message: Callable[[str], None] = ignore) -> Undo:
        """Undo the handover as far as possible; see `drive.undo`. Returns what was undone.

        Raises:
            StateConflictError: nothing can be undone any more, or the undo would end otherwise than was `shown`.
        """
        return undo_handover(self._ports(), handover_id, _this_process(), shown=shown, on_message=on_message)

    def archive_again(self, handover_id: Uuid, *, on_message: Callable[[str], None] = ignore) -> Handover:
        """End a parked handover: the platform copies the topic again; see `drive.archive_again`.

        Raises:
            StateConflictError: the handover is not parked, or remote storage is on.
            ForeignStoreError: the store belongs to another database.
        """
        self._ownership.claim()
        return archive_handover_again(self._ports(), handover_id, _this_process(), on_message=on_message)

    def possible_undo(self, handover: Handover) -> Undo:
        """Return what an undo would do now. Changes nothing."""
        return possible_undo(self._ports(), handover)

    def evidence(self, topic: str, handover: Handover | None = None) -> HandoverEvidence:
        """Return the present values of everything that the checks evaluate. Changes nothing."""
        topic_id = self.topic_to_hand_over(topic) if handover is None else handover.topic_id
        return gather(self._ports(), topic, topic_id, handover)

    def forgotten(self) -> Sequence[ForgottenHandover]:
        """Return the forgotten handovers (see `forgotten_handovers`), and set the metrics of all open handovers."""
        under_way = self._handovers.open_handovers()
        forgotten = forgotten_handovers(under_way, self._handovers.now_ms())
        steps = [(handover.state, handover.step) for handover in under_way]
        publish_handovers(self._recorder, steps, len(forgotten))
        self._recorder.ended(RunKind.HANDOVER_WATCH)
        return forgotten


def _this_process() -> str:
    """Return a driver name that differs between containers even if their host names and process ids are equal."""
    return f"{socket.gethostname()}:{os.getpid()}:{_PROCESS}"


def require_publishable(handovers: HandoverStore, topic: TopicMetadata) -> None:
    """Refuse a publication of the topic while an open handover of it has not reached the step `publish`.

    Raises:
        PublicationRefusedError: an open handover of the topic is at an earlier step.
    """
    handover = handovers.latest(topic.topic_id)
    if handover is None or handover.state.has_ended or not is_before(handover.step, HandoverStep.PUBLISH):
        return
    raise PublicationRefusedError(
        f"the handover of {topic.topic} is at {handover.step} ({handover.state}), and publishes only after the step"
        f" {HandoverStep.RECHECK}: continue it with ./tiering handover {topic.topic} --resume"
    )
