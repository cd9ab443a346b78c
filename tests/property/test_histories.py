"""Which history answers for an offset, against a plain oracle: any order of elections, copies, moves of the log start,
and decisions, with a real database."""

import itertools
import tempfile
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from include.tiering.copying.decisions import follow_source, plan_follow
from include.tiering.copying.plan import HeldBack
from include.tiering.copying.service import store_leader_epochs
from include.tiering.errors import OffsetOutOfRangeError
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment
from include.tiering.model.histories import open_divergence
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Verdict
from include.tiering.reading.fetch import PartitionFetch, RecordReader
from include.tiering.reading.served_log import served_parts
from include.tiering.verification.suites import PARTITION_RULES
from include.tiering.verification.verify_partitions import verify_partitions
from tests.doubles.deployment import World, copy_world
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.quotas import NoAdmission, NoQuotas

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["write", "elect", "lose", "back", "lose and back", "delete", "copy", "copy", "decide", "verify"]
        ),
        st.integers(1, 9),
    ),
    min_size=4,
    max_size=12,
)


@dataclass
class Source:
    """The leader's log: the epoch of each offset, and where it rolled."""

    epochs: list[int] = field(default_factory=list)
    bases: list[int] = field(default_factory=lambda: [0])
    log_start: int = 0
    epoch: int = 0
    left: list[tuple[list[int], list[int], int]] = field(default_factory=list)

    def write(self, records: int) -> None:
        """And roll."""
        self.epochs += [self.epoch] * records
        self.bases.append(len(self.epochs))

    def lose(self, records: int) -> None:
        """An unclean election: the new leader has not the last ones, and writes others."""
        self.left.append((self.epochs[:], self.bases[:], self.log_start))
        end = max(self.log_start, len(self.epochs) - records)
        del self.epochs[end:]
        self.bases = [base for base in self.bases if base < end] or [end]
        self.elect()

    def back(self, number: int) -> None:
        """A replica that an unclean election had left is elected: its log goes on where it was."""
        if self.left:
            self.left.append((self.epochs, self.bases, self.log_start))
            epochs, bases, self.log_start = self.left.pop(number % (len(self.left) - 1))
            self.epochs, self.bases = epochs[:], bases[:]
            self.elect()

    def elect(self) -> None:
        self.epoch += 2
        self.write(2)

    def history(self) -> LeaderEpochs:
        entries = [(epoch, next(offsets)[0]) for epoch, offsets in groupby(enumerate(self.epochs), key=lambda o: o[1])]
        return LeaderEpochs.of(entries).truncated_from_start(self.log_start)


@dataclass
class Oracle:
    """Nothing but dictionaries: whose turn each offset is, and what each history has of it.

    What a history lacks, a later one may have: below the first offset where both were seen to differ, they are one log.
    An older replica may still have records that were deleted elsewhere, and is copied with them.
    """

    owner: dict[int, int] = field(default_factory=dict)
    histories: list[dict[int, int]] = field(default_factory=lambda: [{}])
    differs_from: list[int] = field(default_factory=lambda: [0])
    skipped: set[int] = field(default_factory=set)
    is_open: bool = False

    def copied(self, segment: LogSegment) -> None:
        for offset in range(segment.base_offset, segment.end_offset + 1):
            epoch = segment.leader_epochs.epoch_for(offset)
            if epoch is not None:
                self.histories[-1][offset] = max(epoch, self.histories[-1].get(offset, -1))

    def decided(self, differs_from: int, from_offset: int, end: int) -> None:
        self.histories.append({})
        self.differs_from.append(differs_from)
        for offset in range(from_offset, end):
            self.owner[offset] = len(self.histories) - 1

    def expected(self, offset: int) -> int | None:
        owner = self.owner.get(offset, 0)
        if offset in self.histories[owner] or offset in self.skipped:
            return self.histories[owner].get(offset)
        same = itertools.takewhile(
            lambda later: offset < self.differs_from[later], range(owner + 1, len(self.histories))
        )
        found = {self.histories[later][offset] for later in same if offset in self.histories[later]}
        assert len(found) <= 1, f"offset {offset} has several records: {found}"
        return next(iter(found), None)


END = 300


class Life:
    """One partition from its first record on."""

    def __init__(self, world: World) -> None:
        self.world, self.source, self.oracle = world, Source(), Oracle()
        self.orders = world.source.add("orders", segments=1)
        self.runs = 0
        self.source.write(5)
        self.show()

    def show(self) -> None:
        source, end = self.source, len(self.source.epochs)
        history = source.history()
        segments = []
        for base, following in pairwise([*source.bases, end] if source.bases[-1] != end else source.bases):
            if following > source.log_start:
                part = history.range(base, following)
                segments.append(
                    LogSegment(base, following - 1, 100, 1_600_000_000_000, part, active=False, reason=None)
                )
        segments.append(LogSegment(end, end, 0, 0, LeaderEpochs(), True, IneligibleReason.ACTIVE))
        self.world.source.change(
            self.orders,
            segments=tuple(segments),
            leader_epochs=history,
            log_start_offset=source.log_start,
            log_end_offset=end,
            high_watermark=end,
            last_stable_offset=end,
            recovery_point=end,
        )

    def step(self, name: str, number: int) -> None:
        if name == "lose and back":
            for each in ("lose", "copy", "decide", "copy", "back", "copy", "decide", "copy", "verify"):
                self.step(each, number)
            return
        if name == "copy":
            self.copy()
        elif name == "decide":
            self.decide()
        elif name == "verify":
            self.verify()
        else:
            if name == "write":
                self.source.write(number)
            elif name == "elect":
                self.source.elect()
            elif name == "lose":
                self.source.lose(number)
            elif name == "back":
                self.source.back(number)
            else:
                self.source.log_start = min(self.source.log_start + number, len(self.source.epochs) - 1)
            self.show()

    def copy(self) -> None:
        self.runs += 1
        run_id = f"run-{self.runs}"
        self.record_epochs()
        plan = self.world.planned(run_id)
        for held in plan.held_back:
            if held.hole is not None:
                self.oracle.skipped.update(range(held.hole.first, held.hole.last + 1))
                self.world.metadata.skip_offsets(held.topic_id_partition, held.hole, reason="lost", author="me")
        diverged = [held for held in plan.held_back if held.reason is HeldBack.DIVERGENCE]
        if self.oracle.is_open:
            assert diverged, "what was seen once was forgotten"
        self.oracle.is_open = bool(diverged)
        assert not (diverged and plan.partitions)
        self.world.work.save_plan(run_id, plan.partitions)
        result = self.world.batch(run_id, f"{run_id}/0")
        assert result.failed == ()
        known = {one.base_offset: one for one in self.world.source.replica(self.orders).segments}
        for copied in result.copied:
            self.world.metadata.record_verdict(copied.segment_id, Verdict.PASSED)
            self.oracle.copied(known[copied.start_offset])

    def decide(self) -> None:
        self.record_epochs()
        plan = self.world.planned("decide")
        found = [one for one in plan.held_back if one.reason is HeldBack.DIVERGENCE]
        if not found:
            assert not self.oracle.is_open
            return
        (held,) = found
        assert held.follow_from is not None
        shown = open_divergence(self.world.metadata.divergences(self.orders.topic_id_partition))
        assert shown is not None
        planned = plan_follow(self.world.source.scan(), plan, "orders", 0, held.follow_from, None)
        follow_source(planned, metadata=self.world.metadata, reason="agreed", author="me")
        self.oracle.decided(shown.seen.offsets.first, held.follow_from, END)
        self.oracle.is_open = False
        self.require_the_sources_epochs()

    def record_epochs(self) -> None:
        store_leader_epochs(self.world.source.scan(), self.world.metadata, self.world.registry)

    def require_the_sources_epochs(self) -> None:
        known = self.world.metadata.retention_state(self.orders.topic_id_partition).leader_epochs
        offsets = range(self.source.log_start, len(self.source.epochs))
        assert [known.epoch_for(one) for one in offsets] == [self.source.epochs[one] for one in offsets]

    def verify(self) -> None:
        """What it finds is of another history than the source's."""
        self.record_epochs()
        partition = self.orders.topic_id_partition
        verify_partitions(self.world.metadata, PlainEvaluator(PARTITION_RULES), [partition])
        found = open_divergence(self.world.metadata.divergences(partition))
        if found is None or self.oracle.is_open:
            return
        event("verification saw one")
        offsets = range(found.seen.offsets.first, found.seen.offsets.last + 1)
        answers = {one: self.oracle.expected(one) for one in offsets}
        source = dict(enumerate(self.source.epochs))
        assert any(answer not in (None, source.get(one)) for one, answer in answers.items())
        self.oracle.is_open = True

    def require_one_history(self) -> None:
        partition = self.orders.topic_id_partition
        metadata = self.world.metadata
        reader = RecordReader(metadata, self.world.storage, NoQuotas(), NoAdmission())
        parts = served_parts(
            metadata.list_segments(partition), metadata.divergences(partition), metadata.skipped_offsets(partition)
        )
        for offset in range(max(map(max, filter(None, self.oracle.histories)), default=0) + 2):
            try:
                found = reader.find(PartitionFetch(partition, offset, 1))
            except OffsetOutOfRangeError:
                answer = None
            else:
                answer = found.segment_leader_epochs.epoch_for(offset)
                assert answer is not None, f"offset {offset} was below the log start when {found} was copied"
            assert answer == self.oracle.expected(offset), offset
            scanned = [part.segment for part in parts if part.first_offset <= offset <= part.last_offset]
            assert [one.segment_leader_epochs.epoch_for(offset) for one in scanned] == [answer][answer is None :], (
                offset
            )


@given(STEPS)
@example([("write", 1), ("lose", 1), ("delete", 1), ("lose and back", 4)])
@example([("delete", 2), ("copy", 1), ("lose", 2), ("copy", 1), ("decide", 1), ("copy", 1)])
@example([("lose and back", 1), ("delete", 2), ("lose", 1), ("back", 6), ("lose and back", 9)])
@example([("lose and back", 1), ("delete", 9), ("back", 1), ("lose", 1), ("lose and back", 9)])
@settings(max_examples=60, deadline=None)
def test_every_offset_is_answered_by_the_history_that_is_followed_there(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory, copy_world(Path(directory)) as world:
        life = Life(world)
        for name, number in steps:
            life.step(name, number)
        life.require_one_history()
