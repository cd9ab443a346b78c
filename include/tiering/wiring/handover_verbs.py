"""The verbs of hand-overs: begin, carry on, approve, undo, look."""

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote, urlsplit

from include.tiering.errors import SettingError, StateConflictError
from include.tiering.model.depth import Depth
from include.tiering.model.handover import HandoverStep, Undo
from include.tiering.model.handover_facts import HandoverFacts, StoreFacts
from include.tiering.model.ids import Uuid
from include.tiering.observability.handover_metrics import publish_handovers
from include.tiering.observability.metrics import process_recorder
from include.tiering.tasks.handover.drive import carry_on, undo_handover
from include.tiering.tasks.handover.gather import gather
from include.tiering.tasks.handover.keep_alive import kept_alive
from include.tiering.tasks.handover.ports import HandoverLimits, HandoverPorts
from include.tiering.tasks.handover.undo import possible_undo
from include.tiering.tasks.handover.watchdog import ForgottenHandover, forgotten_handovers
from include.tiering.wiring.handover_actions import HandoverActions
from include.tiering.wiring.publication_verbs import PublicationVerbs
from include.tiering.wiring.unwatched import ignore
from include.tiering.work.handover_contract import Handover, HandoverStore, LocalRetention
from include.tiering.work.sql_handovers import SqlHandoverStore

if TYPE_CHECKING:
    from include.tiering.wiring.tiering import Tiering

_LEASE_MS: Final = 30_000
_PROCESS: Final = secrets.token_hex(4)


class HandoverVerbs(PublicationVerbs):
    """Part of `Tiering`. Needs `cluster.bootstrap_servers`."""

    @cached_property
    def handovers(self) -> HandoverStore:
        return SqlHandoverStore(self.engine, self.cluster_id)

    @cached_property
    def handover_ports(self) -> HandoverPorts:
        """Raises SettingError without bootstrap servers."""
        from include.tiering.cluster.kafka_records import KafkaServedRecords

        if not self.has_brokers:
            raise SettingError("cluster.bootstrap_servers is not set: a hand-over asks and changes the brokers")
        self.require_cluster(self.cluster_id)
        settings = self.effective_settings().handover
        return HandoverPorts(
            handovers=self.handovers,
            brokers=self.brokers,
            source=self.source,
            metadata=self.metadata,
            registry=self.registry,
            work=self.work,
            metadata_topic=self.metadata_topic_writer,
            publications=self.publications,
            verbs=HandoverActions(
                cast("Tiering", self),
                self.publisher,
                KafkaServedRecords(self.client_config(), clock=self.clock),
                depth=Depth.DEEP if settings.verify_deep_enable else Depth.SHALLOW,
            ),
            store=self._store_facts(),
            clock=self.clock,
            new_run_id=lambda: f"handover-{secrets.token_hex(8)}",
            keep_alive=lambda drive: kept_alive(self.handovers, drive, _LEASE_MS),
            limits=HandoverLimits(
                lease_ms=_LEASE_MS,
                hold_seconds=settings.hold_hours * 3600,
                watch_seconds=float(settings.watch_seconds),
                settle_seconds=float(settings.settle_seconds),
                local_steps=settings.local_steps,
                verify_deep=settings.verify_deep_enable,
            ),
        )

    def topic_to_hand_over(self, topic: str) -> Uuid:
        """Its id, by the brokers. Raises UnknownTopicError."""
        return self.known_topic(topic).topic_id

    def begin_handover(self, topic: str, wanted: LocalRetention, *, author: str) -> Handover:
        """Begin a new one.

        Raises:
            StateConflictError: one is on its way already.
            SettingError: a broker has the publisher's broker id.
            ForeignStoreError: the store is not this database's.
        """
        self.claim_store()
        self._require_free_broker_id()
        topic_id = self.topic_to_hand_over(topic)
        open_one = self.handovers.latest(topic_id)
        if open_one is not None and not open_one.state.has_ended:
            raise StateConflictError(
                f"a hand-over of {topic} is at {open_one.step} ({open_one.state}): ./tiering handover {topic} --resume"
                " goes on with it, --undo goes back"
            )
        return self.handovers.begin(Uuid.random(self._random_bytes), topic_id, topic, wanted, author=author)

    def handover_of(self, topic: str) -> Handover | None:
        """The newest of the topic that has this name now, or had it when one of the same name was begun."""
        named = [one for one in self.handovers.open_handovers() if one.topic == topic]
        return named[0] if named else self.handovers.latest(self.topic_to_hand_over(topic))

    def carry_handover_on(
        self,
        handover_id: Uuid,
        *,
        until: HandoverStep | None = None,
        resume: bool = False,
        driver: str | None = None,
        on_step: Callable[[Handover], None] = ignore,
        told: Callable[[str], None] = ignore,
    ) -> Handover:
        """See `tasks.handover.drive.carry_on`. Raises LeaseLostError: another process drives it; ForeignStoreError: the
        store is not this database's."""
        self.require_our_store()
        return carry_on(
            self.handover_ports,
            handover_id,
            driver or _this_process(),
            until=until,
            resume=resume,
            on_step=on_step,
            told=told,
        )

    def approve_handover(self, handover_id: Uuid, plan_hash: str, *, author: str) -> Handover:
        """Agree to exactly this plan. Raises StateConflictError: it has another one."""
        self.claim_store()
        return self.handovers.approve(handover_id, plan_hash, author=author)

    def undo_handover(self, handover_id: Uuid, *, told: Callable[[str], None] = ignore) -> Undo:
        """See `tasks.handover.undo`. Raises StateConflictError: nothing can be undone any more."""
        return undo_handover(self.handover_ports, handover_id, _this_process(), told=told)

    def possible_undo(self, handover: Handover) -> Undo:
        """What an undo would do now. Changes nothing."""
        return possible_undo(self.handover_ports, handover)

    def handover_facts(self, topic: str, handover: Handover | None = None) -> HandoverFacts:
        """All that the checks look at, as it is now. Changes nothing."""
        topic_id = self.topic_to_hand_over(topic) if handover is None else handover.topic_id
        return gather(self.handover_ports, topic, topic_id, handover)

    def forgotten_handovers(self) -> Sequence[ForgottenHandover]:
        """Those that hold a topic's retention or copies back while nobody carries them on; also a metric."""
        under_way = self.handovers.open_handovers()
        forgotten = forgotten_handovers(under_way, self.handovers.now_ms())
        publish_handovers(process_recorder(), [(one.state, one.step) for one in under_way], len(forgotten))
        return forgotten

    def _store_facts(self) -> StoreFacts:
        remote = self.settings.remote_storage
        parts = urlsplit(remote.required_url())
        directory = unquote(parts.path) if parts.scheme == "file" else None
        wants = remote.layout == "aiven" and bool(remote.custom_metadata_fields_include)
        return StoreFacts(remote.layout, directory, wants)


def _this_process() -> str:
    """Of two containers that have the same name and process id each is another driver."""
    return f"{socket.gethostname()}:{os.getpid()}:{_PROCESS}"
