"""Handovers of topics to their brokers: begin, carry on, approve, undo, look; with their metrics."""

import os
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
from include.tiering.handover.drive import carry_on, possible_undo, undo_handover
from include.tiering.handover.ports import HandoverPorts
from include.tiering.handover.rules import HandoverState, HandoverStep, Undo, is_before
from include.tiering.handover.run_checks import gather
from include.tiering.kafka.cluster.contract import Brokers, TopicMetadata, known_topic
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.telemetry.metrics import Metric, MetricKind, PrometheusRecorder, ignore, process_recorder

_PROCESS: Final = secrets.token_hex(4)


class HandoverService:
    """Hands topics over step by step. Needs `cluster.bootstrap_servers`.

    Args:
        ports: all that the steps touch; raises SettingError without bootstrap servers.
        require_free_broker_id: raises SettingError if a broker has the publisher's broker id.
    """

    def __init__(
        self,
        *,
        handovers: HandoverStore,
        ports: Callable[[], HandoverPorts],
        brokers: Callable[[], Brokers],
        require_free_broker_id: Callable[[], None],
        ownership: StoreOwnership,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._handovers = handovers
        self._ports = ports
        self._brokers = brokers
        self._require_free_broker_id = require_free_broker_id
        self._ownership = ownership
        self._random_bytes = random_bytes

    def topic_to_hand_over(self, topic: str) -> Uuid:
        """Its id, by the brokers. Raises UnknownTopicError."""
        return known_topic(self._brokers(), topic).topic_id

    def begin(self, topic: str, wanted: LocalRetention, *, author: str) -> Handover:
        """Begin a new one.

        Raises:
            StateConflictError: one is on its way already.
            SettingError: a broker has the publisher's broker id.
            ForeignStoreError: the store is not this database's.
        """
        self._ownership.claim()
        self._require_free_broker_id()
        topic_id = self.topic_to_hand_over(topic)
        open_one = self._handovers.latest(topic_id)
        if open_one is not None and not open_one.state.has_ended:
            raise StateConflictError(
                f"a handover of {topic} is at {open_one.step} ({open_one.state}): ./tiering handover {topic} --resume"
                " goes on with it, --undo goes back"
            )
        return self._handovers.begin(Uuid.random(self._random_bytes), topic_id, topic, wanted, author=author)

    def latest_of(self, topic: str) -> Handover | None:
        """The open one of this name, or else the newest of the topic that has this name now.

        Two are open if the topic was created again between the question for its id and the record of its handover:
        that of the topic of now comes first, so that it can end and the other one after it.
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
        return max(named, key=lambda one: (one.topic_id == topic_id, one.began_at_ms))

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
        """See `drive.carry_on`. Raises LeaseLostError: another process drives it; ForeignStoreError: the
        store is not this database's.
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
        """Agree to exactly this plan. Raises StateConflictError: it has another one."""
        self._ownership.claim()
        return self._handovers.approve(handover_id, plan_hash, author=author)

    def undo(self, handover_id: Uuid, *, on_message: Callable[[str], None] = ignore) -> Undo:
        """See `drive.possible_undo`. Raises StateConflictError: nothing can be undone any more."""
        return undo_handover(self._ports(), handover_id, _this_process(), on_message=on_message)

    def possible_undo(self, handover: Handover) -> Undo:
        """What an undo would do now. Changes nothing."""
        return possible_undo(self._ports(), handover)

    def evidence(self, topic: str, handover: Handover | None = None) -> HandoverEvidence:
        """All that the checks look at, as it is now. Changes nothing."""
        topic_id = self.topic_to_hand_over(topic) if handover is None else handover.topic_id
        return gather(self._ports(), topic, topic_id, handover)

    def forgotten(self) -> Sequence[ForgottenHandover]:
        """Those that hold a topic's retention or copies back while nobody carries them on; also a metric."""
        under_way = self._handovers.open_handovers()
        forgotten = forgotten_handovers(under_way, self._handovers.now_ms())
        publish_handovers(process_recorder(), [(one.state, one.step) for one in under_way], len(forgotten))
        return forgotten


def _this_process() -> str:
    """Of two containers that have the same name and process id each is another driver."""
    return f"{socket.gethostname()}:{os.getpid()}:{_PROCESS}"


def require_publishable(handovers: HandoverStore, topic: TopicMetadata) -> None:
    """Raises PublicationRefusedError while a handover of the topic is before its publication."""
    handover = handovers.latest(topic.topic_id)
    if handover is None or handover.state.has_ended or not is_before(handover.step, HandoverStep.PUBLISH):
        return
    raise PublicationRefusedError(
        f"the handover of {topic.topic} is at {handover.step} ({handover.state}), and publishes behind"
        f" {HandoverStep.RECHECK}: ./tiering handover {topic.topic} --resume"
    )


HANDOVERS: Final = Metric(
    "tiering_handovers",
    MetricKind.GAUGE,
    ("state", "step"),
    "Handovers that have not ended, by state and by the step that is to be done next.",
)
HANDOVERS_FORGOTTEN: Final = Metric(
    "tiering_handovers_forgotten",
    MetricKind.GAUGE,
    (),
    "Handovers that hold a topic's retention or its copies back while nobody carries them on.",
)

HANDOVER_METRICS: Final = (HANDOVERS, HANDOVERS_FORGOTTEN)


def publish_handovers(
    recorder: PrometheusRecorder, open_ones: Iterable[tuple[HandoverState, HandoverStep]], forgotten: int
) -> None:
    """All that there are; a combination that is gone is gone from the metric too."""
    counted = Counter((str(state), str(step)) for state, step in open_ones)
    values: dict[tuple[str, ...], float] = {labels: float(number) for labels, number in counted.items()}
    recorder.show(HANDOVERS, values)
    recorder.show(HANDOVERS_FORGOTTEN, {(): float(forgotten)})
