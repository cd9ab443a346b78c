"""When the faults stop, everything that can be done gets done, and everything that was left over is cleaned up."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from include.tiering.audit.record import Guard
from include.tiering.copying.plan import HeldBack
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from tests.simulation.invariants.closing import DecisionClosing, GuardClosing, HandoverClosing, PublicationClosing
from tests.simulation.invariants.rows import DELETING, FINISHED, GONE, STARTED, SUFFIXES, Row
from tests.simulation.world.mistake_events import MistakeEvents
from tests.simulation.world.runs import Runs

if TYPE_CHECKING:
    from tests.simulation.world.world import World

_ENDS = "what runs when the faults stop comes to an end"
_ROUNDS = 6
_SLOTS = 8
_LEASE_AND_MORE_MS = 31_000
_SLACK_MS = 40_000
_MOST_SKEW_MS = 90_000
_ABANDONED_COPY_EXPIRY_MS = 24 * 60 * 60 * 1000 + _MOST_SKEW_MS + 1
"""By the clock of whoever began the copy."""


class Closing:
    """The quiet end of one world."""

    def __init__(self, world: "World", runs: Runs) -> None:
        self._world = world
        self._runs = runs

    def run(self) -> None:
        """Ends at once when something breaks on the way."""
        world = self._world
        self._calm_down()
        if (world.tempers.mistakes or self._is_taken_over()) and not self._until_idle(_ENDS):
            return
        if self._is_refused():
            MistakeEvents(world, self._runs).take_over(world.side)
            if not self._until_idle(_ENDS):
                return
        self._runs.retry()
        if not self._until_idle(_ENDS):
            return
        if world.tempers.hands_over:
            # Its expirations wait while an audit's guard stands.
            if not GuardClosing(world, self._until_idle).run():
                return
            if not HandoverClosing(world, self._runs, self._until_idle, self._rounds).run():
                return
        if not self._rounds(self._runs.start_copy_run, "all eligible work finishes"):
            return
        if world.tempers.decides:
            if not GuardClosing(world, self._until_idle).run():
                return
            if not DecisionClosing(world, self._runs, self._until_idle, self._rounds).run():
                return
        if world.tempers.verifications and not self._verified():
            return
        if not GuardClosing(world, self._until_idle).run():
            return
        if any(row.state not in (FINISHED, GONE) for row in self._world.watch.rows.known.values()):
            self._world.scheduler.now_ms += _ABANDONED_COPY_EXPIRY_MS
        if not self._rounds(self._runs.start_expire_run, "all that expires goes"):
            return
        if any(held.reason is HeldBack.STOPPED for held in self._runs.held_back):
            # What stopped it was below our log start and went.
            if not self._rounds(self._runs.start_copy_run, "all eligible work finishes"):
                return
            if not self._rounds(self._runs.start_expire_run, "all that expires goes"):
                return
        self._require_all_copied()
        self._require_no_divergence()
        world.watch.histories.require_found()
        self._require_expired()
        if world.tempers.audits and not self._audited():
            return
        self._require_clean()
        if world.tempers.publishes and not world.tempers.hands_over:
            PublicationClosing(world, self._runs, self._until_idle).run()

    def _is_taken_over(self) -> bool:
        """Somebody is at it, or will have to. Of two who take the store over at once, or of one whom a run of before a
        restore overtakes, both may be refused and asked to call again; so a person calls when nothing runs any more,
        once: then it must do."""
        return self._is_refused() or bool(self._world.alive("taker"))

    def _is_refused(self) -> bool:
        ownership, side = self._world.watch.ownership, self._world.side
        return ownership.is_behind(side) or ownership.is_refused(side)

    def _verified(self) -> bool:
        """All that passed is right; what is not is copied again, or its partition stands still."""
        world = self._world
        self._runs.verify(None, missing_is_real=self._is_missing_real())
        if not self._until_idle(_ENDS):
            return False
        if not self._rounds(self._runs.start_copy_run, "all eligible work finishes"):
            return False
        self._runs.verify(None, missing_is_real=self._is_missing_real())
        if not self._until_idle(_ENDS):
            return False
        for row in world.watch.rows.known.values():
            if row.state == FINISHED and row.verdict == "none":
                world.watch.broken("what was copied is verified", str(row))
        return True

    def _is_missing_real(self) -> bool:
        """Whether a person knows that objects are gone: what was there rotted, or it was deleted, and a restore brought
        its rows back."""
        watch = self._world.watch
        return bool(watch.rotten) or any(watch.rows.was_removed(row) for row in watch.rows.known.values())

    def _audited(self) -> bool:
        """Old enough by now is whatever was left anywhere, and nobody works on it."""
        self._world.scheduler.now_ms += _ABANDONED_COPY_EXPIRY_MS
        return self._rounds(self._runs.start_audit, "all that nobody knows goes")

    def _calm_down(self) -> None:
        world = self._world
        world.scheduler.quiet = True
        world.cluster_metadata.thaw()
        self._mend()
        if not world.is_bucket_ours:
            world.bucket_changes_hands()
        world.bucket.set_rate(None, world.scheduler.now_ms)
        if world.tempers.has_pools:
            world.resize_pool(_SLOTS)
        for topic in sorted(world.admin_work.paused_topics()):
            world.admin_work.resume(None if topic == "*" else topic, author="operator")
        for configs in world.cluster.configs.values():
            configs["cleanup.policy"] = "delete"
        for log in world.cluster.logs.values():
            for replica in log.replicas.values():
                for file in replica.files:
                    file.corrupt, file.claimed_bytes = False, 0
            for broker in log.brokers:
                if broker != log.leader:
                    log.follow(log.replicas[broker])
            log.isr = list(log.brokers)
            log.replicate()
            for replica in log.replicas.values():
                log.checkpoint(replica)
        for partition in world.watch.partitions() if not world.tempers.hands_over else ():
            if world.admin_registry.owner(partition.topic_id) is TopicOwner.HANDING_OVER:
                world.admin_registry.set_owner(
                    partition.topic_id,
                    partition.topic,
                    TopicOwner.PLATFORM,
                    expected=TopicOwner.HANDING_OVER,
                    author="operator",
                )
        world.cluster.changed()
        world.watch.after_event()

    def _mend(self) -> None:
        """Whatever people did wrong is put right."""
        world = self._world
        world.cluster_metadata.is_away = False
        # As in `store_comes_back`: what one of these sent elsewhere would be of a copy whose marker, which is read
        # behind its last object, is the store's again.
        for process in world.alive() if not world.places.may_come_back() else ():
            if process in world.places.misdirected:
                world.scheduler.kill(process)
        world.places.comes_back()
        world.places.settings = world.places.right
        world.store.show_all(world.scheduler.steps)
        if world.tempers.mistakes:
            mistakes = MistakeEvents(world, self._runs)
            mistakes.clock_is_mended()
            mistakes.copy_is_switched_off()

    def _until_idle(self, what: str) -> bool:
        world = self._world
        idle = world.scheduler.run_quietly(lambda: not world.scheduler.tasks or world.watch.violation is not None)
        if not idle:
            waiting = ", ".join(f"{task.process.name} at {task.label}" for task in world.scheduler.tasks)
            world.watch.broken(what, f"still there: {waiting}")
        return world.watch.violation is None

    def _rounds(self, begin: Callable[[], None], what: str) -> bool:
        """Run after run, until one finds nothing to do."""
        for _ in range(_ROUNDS):
            empty_before = self._runs.empty_plans
            begin()
            if not self._until_idle(what):
                return False
            while self._runs.waiting:
                self._runs.approve()
                if not self._until_idle(what):
                    return False
                if self._runs.waiting and self._world.tempers.verifications:
                    self._runs.start_verification()
                    if not self._until_idle(what):
                        return False
            if self._runs.empty_plans > empty_before:
                return True
            self._world.scheduler.now_ms += _LEASE_AND_MORE_MS
        self._world.watch.broken(what, f"not after {_ROUNDS} runs")
        return False

    def _require_all_copied(self) -> None:
        """What a plan holds back must be for a reason that lies outside."""
        logs = self._world.cluster.logs
        for held in self._runs.held_back:
            log = logs.get(held.topic_id_partition)
            if log is None:
                continue
            excused = {
                HeldBack.NOT_ELIGIBLE: True,
                HeldBack.NOT_OURS: True,
                HeldBack.PAST_RETENTION: True,
                HeldBack.HOLE: log.lost_locally > held.next_offset or log.unclean,
                HeldBack.DIVERGENCE: log.unclean,
                HeldBack.LOST: True,
                HeldBack.FAILED_AGAIN: True,
                HeldBack.COPY_IN_DOUBT: bool(self._world.watch.rotten),
                HeldBack.STORE_IN_DOUBT: bool(self._world.watch.rotten),
                HeldBack.STOPPED: self._is_stopped_by_a_published_one(held.topic_id_partition),
            }
            is_seen = held.divergence is not None and not held.divergence.is_behind
            if is_seen and not self._world.watch.divergences.is_recorded(held.topic_id_partition):
                self._world.watch.broken("a divergence that was seen is recorded", f"{held.topic_id_partition}")
            if not excused.get(held.reason, False) and not self._world.watch.foreign_history:
                self._world.watch.broken("no gap is made by the platform", f"{held.topic_id_partition}: {held}")

    def _is_stopped_by_a_published_one(self, partition: TopicIdPartition) -> bool:
        """A failed segment that would expire stays as long as brokers know it: its deletion is published first."""
        watch, place = self._world.watch, (str(partition.topic_id), partition.partition)
        rows = [row for row in watch.rows.known.values() if row.place == place and row.stops]
        return any(watch.publishing.is_published(row) for row in rows)

    def _require_no_divergence(self) -> None:
        """What the leader has below the last copied offset is what was copied, unless a plan says that it is not, or
        somebody decided to go on without."""
        watch = self._world.watch
        held_back = {held.topic_id_partition for held in self._runs.held_back}
        for partition, log in self._world.cluster.logs.items():
            if log.leading is None or partition in held_back or watch.foreign_history:
                continue
            place = (str(partition.topic_id), partition.partition)
            finished = [row for row in watch.rows.known.values() if row.place == place and row.state == FINISHED]
            # Of the history that is followed now.
            last = max((row.end_offset for row in finished), default=-1)
            highest = min(last, watch.highest_copied(partition))
            start = max(log.leading.log_start, watch.rows.log_starts.get(place, 0))
            remote = {record for row in finished for record in watch.rows.records(row) or []}
            # The active segment is copied whole when it is rolled, and covers what it holds.
            compared = min(highest, log.leading.files[-1].base_offset - 1)
            if not finished or self._world.admin_registry.owner(partition.topic_id) is not TopicOwner.PLATFORM:
                continue
            first = min(row.start_offset for row in finished)
            for record in log.leading.records():
                is_compared = max(start, first) <= record[1] <= compared
                if (
                    is_compared
                    and record not in remote
                    and not watch.rows.is_decided(finished[0], record[1], record[1])
                ):
                    watch.broken(
                        "no gap is made by the platform", f"{partition}: {record} is not remote, later offsets are"
                    )
                    return

    def _require_expired(self) -> None:
        """The oldest segment of a partition is not past its time. Of copies that begin alike that is the longest: what
        it covers stays as long."""
        world = self._world
        for partition, log in world.cluster.logs.items():
            place = (str(partition.topic_id), partition.partition)
            finished = [row for row in world.watch.rows.known.values() if row.place == place and row.state == FINISHED]
            settings = [one for one in world.settings_history if one[1] == partition.topic]
            is_ours = world.admin_registry.owner(partition.topic_id) is TopicOwner.PLATFORM
            broker_tiers = world.cluster.configs[partition.topic_id].get("remote.storage.enable") == "true"
            is_stopped = any(row.stops for row in finished)
            is_doubtful = (
                is_stopped or log.unclean or world.cluster.removed or world.watch.foreign_history or broker_tiers
            )
            if not finished or not settings or not is_ours or is_doubtful:
                continue
            oldest = min(finished, key=lambda row: (row.start_offset, -row.end_offset))
            if world.watch.publishing.is_published(oldest):
                continue  # it stays until its deletion was published
            retention_ms = settings[-1][2]
            age_ms = world.scheduler.now_ms - oldest.max_timestamp_ms
            if retention_ms is not None and age_ms > retention_ms + _SLACK_MS:
                world.watch.broken("what is past its time goes", f"{oldest} is {age_ms} ms old; {retention_ms}")

    def _require_clean(self) -> None:
        world, watch = self._world, self._world.watch
        owners = {
            str(partition.topic_id): world.admin_registry.owner(partition.topic_id) for partition in watch.partitions()
        }
        keys = {MARKER_KEY}
        for row in watch.rows.known.values():
            if row.state == FINISHED:
                if row.segment_id not in watch.may_leave_objects | watch.rotten:
                    watch.rows.check_bytes(row)
                keys.update(row.key(suffix) for suffix in SUFFIXES)
            elif row.superseded_by is not None and row.state == DELETING:
                continue  # held: the copy in its place is not proved
            elif row.state == STARTED and (self._is_nowhere_else(row) or self._has_no_witness(row)):
                keys.update(row.key(suffix) for suffix in SUFFIXES)
            elif row.state != GONE and owners.get(row.topic_id) is TopicOwner.PLATFORM:
                watch.broken("abandoned attempts are cleaned", str(row))
        if watch.foreign_history:
            return
        if world.tempers.audits:
            self._require_audited(keys, owners)
            return
        # What stays is for an audit: see `_require_audited`, which excuses neither.
        stays = watch.wrote_late | watch.deleted_elsewhere
        gone_ids = {row.segment_id for row in watch.rows.known.values() if row.state == GONE} - stays
        for key in sorted(set(world.store.objects) - keys):
            if key.rpartition("/")[2][21:43] in gone_ids:
                watch.broken("abandoned objects are cleaned", key)
        for upload in world.store.uploads:
            is_hidden = upload.key in watch.sending.hidden_uploads
            if upload.listed and not is_hidden and upload.key.rpartition("/")[2][21:43] in gone_ids:
                watch.broken("abandoned uploads are cleaned", upload.key)

    def _is_nowhere_else(self, row: Row) -> bool:
        """Something of an abandoned copy is there, and offsets of it that no passed copy has, or one that passed and
        rotted since: who removes abandoned copies looks at every copy in their place."""
        if not any(row.key(suffix) in self._world.store.objects for suffix in SUFFIXES):
            return False
        offsets = set(range(row.start_offset, row.end_offset + 1))
        for other in self._world.watch.rows.known.values():
            has_passed = other.state == FINISHED and other.verdict in ("passed", "expired")
            covered = set(range(other.start_offset, other.end_offset + 1))
            if (
                other.place != row.place
                or not has_passed
                or covered.isdisjoint(range(row.start_offset, row.end_offset + 1))
            ):
                continue
            if not self._world.watch.rows.is_right(other):
                return True
            offsets -= covered
        return bool(offsets)

    def _has_no_witness(self, row: Row) -> bool:
        """Nothing of an abandoned copy is in the store, nor all of one that was finished, of its partition, or of
        another where its own has none: nobody can tell whether it is the right store, so that the copy may be there.
        """
        if any(row.key(suffix) in self._world.store.objects for suffix in SUFFIXES):
            return False
        finished = [one for one in self._world.watch.rows.known.values() if one.state == FINISHED]
        own = [one for one in finished if one.place == row.place]
        return any(one.segment_id in self._world.watch.rotten for one in own or finished)

    def _require_audited(self, keys: set[str], owners: dict[str, TopicOwner]) -> None:
        """Nothing is excused that an audit may remove: late writes, what a power failure took, what lists hid."""
        world, watch = self._world, self._world.watch
        refusals = [one.guard for one in self._runs.refusals]
        if refusals == [Guard.EMPTY_DATABASE] and not watch.rows.known:
            return  # all expired and its tombstones are forgotten: it looks like a database that was emptied
        if refusals == [Guard.OLDER_DATABASE] and watch.never_begun:
            return  # a power failure took the row of a copy that is complete: it looks like a restored one
        if refusals:
            watch.broken("all that nobody knows goes", f"the audit refuses: {self._runs.refusals[0].sentence}")
        held = {row.segment_id for row in watch.rows.known.values() if row.superseded_by is not None}
        for key in sorted(set(world.store.objects) - keys - set(world.store.brokers_own)):
            place, _, name = key.rpartition("/")
            topic_id = place.partition("/")[0][-22:]
            is_complete = all(f"{place}/{name[:43]}.{one}" in world.store.objects for one in SUFFIXES)
            if self._is_ours(topic_id, owners) and not is_complete and name[21:43] not in held:
                watch.broken("all that nobody knows goes", key)
        kept = {row.segment_id for row in watch.rows.known.values() if row.state == STARTED}
        for upload in world.store.uploads:
            topic_id = upload.key.partition("/")[0][-22:]
            if upload.key.rpartition("/")[2][21:43] in kept:
                continue  # parts that stay as they may be all that is left, with the upload of the next one
            if upload.listed and upload.process is not None and self._is_ours(topic_id, owners):
                watch.broken("all that nobody knows goes", f"the upload of {upload.key}")

    def _is_ours(self, topic_id: str, owners: dict[str, TopicOwner]) -> bool:
        """An audit may remove of it: it leaves alone what brokers tier by what the cluster says, too, which the
        registry learns with the next plan to copy."""
        configs = {str(one): found for one, found in self._world.cluster.configs.items()}
        is_tiered = configs.get(topic_id, {}).get("remote.storage.enable") == "true"
        return not is_tiered and owners.get(topic_id, TopicOwner.NONE) in (TopicOwner.NONE, TopicOwner.PLATFORM)
