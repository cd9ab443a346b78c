"""Mutants of expiration: what is decided, in which order it is done, and what must be asked before."""

from dataclasses import replace
from typing import Any

from include.tiering.expiration import plan, rules
from include.tiering.expiration.checks import ReplacementCheck
from include.tiering.expiration.delete_segments import DeleteBatch, SegmentDeleter
from include.tiering.model.leader_epochs import MergedHistory
from include.tiering.model.ownership import LeaseRole
from include.tiering.model.retention import DeletionReason
from include.tiering.runs.deletion_run import DeletionRun
from include.tiering.segments import sql_rows
from include.tiering.segments.topics import TopicWatch
from tests.simulation.mutants.mutant import Call, Instead, Mutant, Mutants, Patch, nothing, otherwise, said, unasked

EXPIRING = Mutants()


_begins = SegmentDeleter.begin
_deletes = SegmentDeleter.delete
_plans = plan.decide_deletions  # type: ignore[attr-defined]
_covers_it = ReplacementCheck.require_covered


@EXPIRING.breaks("log-start-late", "the log start is raised before a deletion begins", "the rule is ignored")
def _log_start_late() -> list[Patch]:
    """Never raised before segments go."""

    def delete(self: Any, lease: Any, group: Any, **rest: Any) -> Any:
        late = replace(self, metadata=Instead(self.metadata, raise_log_start=lambda *_args, **_rest: 0))
        return _deletes(late, lease, group, **rest)

    return [(SegmentDeleter, "delete", delete)]


@EXPIRING.breaks(
    "expire-objects-first", "DELETE_STARTED before the first object is deleted", "objects are deleted first"
)
def _objects_first() -> list[Patch]:
    def delete(self: Any, lease: Any, group: Any, **rest: Any) -> Any:
        self.storage.delete_log_segments([segment for _, segment in group])
        return _deletes(self, lease, group, **rest)

    return [(SegmentDeleter, "delete", delete)]


@EXPIRING.breaks(
    "deleted-unclaimed",
    "the store is claimed before the first object of a group is deleted",
    "the store is not claimed",
)
def _deleted_unclaimed() -> list[Patch]:
    def delete(self: Any, lease: Any, group: Any, **rest: Any) -> Any:
        return _deletes(replace(self, claim=nothing), lease, group, **rest)

    return [(SegmentDeleter, "delete", delete)]


@EXPIRING.breaks("failures-ignored", "a row stays while its objects stay", "rows are deleted although objects stay")
def _failures_ignored() -> list[Patch]:
    def delete(self: Any, lease: Any, group: Any, **rest: Any) -> Any:
        blind = Instead(self.storage, delete_log_segments=lambda found: self.storage.delete_log_segments(found) and ())
        return _deletes(replace(self, storage=blind), lease, group, **rest)

    return [(SegmentDeleter, "delete", delete)]


@EXPIRING.breaks("objects-stay", "a row is deleted after its objects", "the row is deleted, and the objects are left")
def _objects_stay() -> list[Patch]:
    """Rows say that all is gone."""

    def delete(self: Any, lease: Any, group: Any, **rest: Any) -> Any:
        idle = Instead(self.storage, delete_log_segments=lambda _found: ())
        return _deletes(replace(self, storage=idle), lease, group, **rest)

    return [(SegmentDeleter, "delete", delete)]


@EXPIRING.breaks("forget-begun", "begun deletions are continued", "begun deletions are ignored")
def _begun_ones_forgotten() -> list[Patch]:
    """Deletions that a dead batch began are not taken up."""
    return [(rules, "_unfinished_deletes", lambda *_: iter(()))]


@EXPIRING.breaks("no-state-check", "a deletion is compare-and-set", "a deletion continues in any state")
def _found_again() -> list[Patch]:
    """A deletion that met another state goes on all the same."""

    def delete(self: Any, lease: Any, group: Any, **rest: Any) -> Any:
        metadata = Instead(self.metadata, advance_deletion=lambda segments, *_args, **_rest: segments)
        return _deletes(replace(self, metadata=metadata), lease, group, **rest)

    return [(SegmentDeleter, "delete", delete)]


@EXPIRING.breaks("no-delete-rate", "deletions keep to their rate", "the check is left out")
def _no_rate() -> list[Patch]:
    real = DeleteBatch._expire

    def instead(self: Any, lease: Any) -> None:
        self._quotas = Instead(self._quotas, delete=lambda *_args, **_rest: Instead(None, take=lambda: None))
        real(self, lease)

    return [(DeleteBatch, "_expire", instead)]


@EXPIRING.breaks("owner-first", "the owner is checked after the wait", "the owner is checked before the wait")
def _owner_before_the_wait() -> list[Patch]:
    """The owner is asked, then the rate is waited for."""
    real = DeleteBatch._expire

    def instead(self: Any, lease: Any) -> None:
        limiters: list[Any] = []
        quotas, deleter = self._quotas, self._deleter

        def delete(topic: str, *, go_on: Any) -> Any:
            limiters.append(quotas.delete(topic, go_on=go_on))
            return Instead(None, take=lambda: None)

        def wait_and_delete(*args: Any, **rest: Any) -> Any:
            limiters[0].take()
            return deleter.delete(*args, **rest)

        self._quotas = Instead(quotas, delete=delete)
        self._deleter = Instead(deleter, delete=wait_and_delete)
        try:
            real(self, lease)
        finally:
            self._quotas, self._deleter = quotas, deleter

    return [(DeleteBatch, "_expire", instead)]


@EXPIRING.breaks("no-deletion-limit", "nothing is deleted before the deletion limit allows it", "every run is released")
def _no_deletion_limit() -> list[Patch]:
    return [(DeletionRun, "is_released", property(lambda _self: True))]


@EXPIRING.breaks("foreign-topics", "nothing of another owner is deleted", "the owner is not checked")
def _not_our_topics() -> list[Patch]:
    return [(SegmentDeleter, "is_ours", lambda *_args: True)]


@EXPIRING.breaks("age-zero", "retention.ms is kept", "every segment counts as past its retention")
def _retention_is_age_zero() -> list[Patch]:
    """The cut-off is the clock."""

    def cut_off(given: Any) -> int | None:
        return None if given.retention_ms is None else int(given.now_ms)

    return [(rules, "_cut_off_ms", cut_off)]


@EXPIRING.breaks("size-rounds-up", "retention.bytes are kept", "one more segment is deleted")
def _size_rounds_up() -> list[Patch]:
    """A segment goes although what stays is then less than what retention.bytes keeps."""
    real = rules._Scan._by_size

    def instead(self: Any, segment: Any) -> Any:
        if self._excess_bytes:
            self._excess_bytes = max(self._excess_bytes, segment.segment_size_bytes)
        return real(self, segment)

    return [(rules._Scan, "_by_size", instead)]


def _covered_too() -> list[Patch]:
    """What goes along with a segment, because it covers it, is not counted."""
    return [(rules._Scan, "_passed_with", lambda _self, segment: [segment])]


def _covers(call: Call) -> bool:
    return len(call.result) > 1


@EXPIRING.breaks("old-leaders", "an old leader's bytes are no local size", "the rule is ignored", otherwise)
def _bytes_of_old_leaders() -> list[Patch]:
    """Whoever leads by the metadata is believed, whatever another replica knows."""

    def instead(report: Any) -> Any:
        replicas = () if report is None else report.replicas
        return {replica.topic_id_partition: replica for replica in replicas if replica.chosen}

    return [(plan, "_current_replicas", instead)]


@EXPIRING.breaks(
    "below-log-start", "a segment that contains the log start is no local size", "the rule is ignored", otherwise
)
def _bytes_below_log_starts() -> list[Patch]:
    """A segment into which a log start fell counts whole."""

    def instead(replica: Any, highest: int | None, _log_start_offset: int) -> int:
        first = 0 if highest is None else highest + 1
        return sum(segment.size_bytes for segment in replica.segments if segment.base_offset >= first)

    return [(plan, "local_only_bytes", instead)]


@EXPIRING.breaks("abandoned-is-size", "only FINISHED bytes are size", "begun copies count as well")
def _abandoned_is_size() -> list[Patch]:
    """Bytes of copies that never ended count towards retention.bytes."""

    def instead(self: Any) -> int:
        limit = self._given.retention_bytes
        total = sum(one.segment_size_bytes for one in self._segments) + (self._given.local_only_bytes or 0)
        return 0 if limit is None else max(0, total - limit)

    return [(rules._Scan, "_excess", instead)]


@EXPIRING.breaks("short-history", "epochs are merged over time", "only the last cache is used")
def _shortened_history() -> list[Patch]:
    """What a broker's epoch cache says now is all that there ever was."""

    def instead(_known: Any, seen: Any, _seen_log_start: int) -> MergedHistory:
        return MergedHistory(seen)

    return [(sql_rows, "merged", instead)]


@EXPIRING.breaks(
    "brokers-log-start", "the broker's log start deletes nothing", "the broker's log start is used as the platform's"
)
def _brokers_log_start() -> list[Patch]:
    """The broker's log start is ours: what it forgot goes. No batch asks again, which would find out."""
    real: Any = plan.ExpirationPlanner._input

    def instead(self: Any, partition: Any, replica: Any, now_ms: int, *rest: Any) -> Any:
        given = real(self, partition, replica, now_ms, *rest)
        start = 0 if replica is None else replica.log_start_offset
        return replace(given, log_start_offset=max(given.log_start_offset, start))

    return [
        (plan.ExpirationPlanner, "_input", instead),
        (DeleteBatch, "_still_planned", unasked),
    ]


@EXPIRING.breaks("absence-is-proof", "a topic's deletion needs positive evidence", "absence is enough")
def _absence_is_proof() -> list[Patch]:
    """A topic that the metadata does not show was deleted, and it shows none."""
    records, stands = TopicWatch.record, TopicWatch.lifecycle_states

    def blind(watch: Any) -> Any:
        hidden = Instead(
            watch.cluster_metadata, topic=lambda _topic_id: None, removal_evidence=lambda _topic_id: "not there"
        )
        return replace(watch, cluster_metadata=hidden)

    def record(self: Any, partitions: Any, *, author: str) -> None:
        records(blind(self), partitions, author=author)

    def lifecycle_states(self: Any, partitions: Any, **rest: Any) -> Any:
        return stands(blind(self), partitions, **rest)

    return [(TopicWatch, "record", record), (TopicWatch, "lifecycle_states", lifecycle_states)]


def _copies_taken_for_abandoned() -> list[Patch]:
    """A copy that somebody works on is abandoned at once. Nor is it asked whether something else has its offsets, which
    alone would keep it."""
    worked_on: set[Any] = set()

    def decide(given: Any) -> Any:
        if not given.under_live_work:
            return _plans(given)
        return _plans(replace(given, abandoned_copy_expiry_ms=0, under_live_work=frozenset()))

    def begin(self: Any, lease: Any, planned: Any) -> Any:
        if self.work.holder(planned.topic_id_partition, LeaseRole.COPY) is not None:
            worked_on.update(one.segment_id for one in planned.deletions)
        return _begins(replace(self, work=Instead(self.work, holder=lambda *_args: None)), lease, planned)

    def covered(self: Any, abandoned: Any) -> None:
        if abandoned.remote_log_segment_id not in worked_on:
            _covers_it(self, abandoned)

    return [
        (plan, "decide_deletions", decide),
        (SegmentDeleter, "begin", begin),
        (ReplacementCheck, "require_covered", covered),
    ]


def _of_somebody(call: Call) -> bool:
    """One is worked on when it is planned, or perhaps when it is deleted."""
    if isinstance(call.args[0], SegmentDeleter):
        return any(one.reason == DeletionReason.ABANDONED_COPY for one in call.args[2].deletions)
    return bool(getattr(call.args[0], "under_live_work", ()))


@EXPIRING.breaks(
    "no-hold", "superseded segments are held for a day", "a superseded segment is deleted at once", said(True)
)
def _never_held() -> list[Patch]:
    return [(rules, "_is_held", lambda *_: False)]


EXPIRING += [
    Mutant(
        "covered-too",
        "bytes of segments that are deleted along are counted",
        "the rule is ignored",
        _covered_too,
        _covers,
    ),
    Mutant(
        "no-live-work",
        "a copy under a live lease is not abandoned",
        "every copy is abandoned at once",
        _copies_taken_for_abandoned,
        _of_somebody,
    ),
]
