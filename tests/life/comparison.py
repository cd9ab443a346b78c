"""What a platform archived and said, compared with what consumers read. Each difference is a finding, a sentence."""

import filecmp
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.life.oracle import Oracle, Place
from tests.life.platform import Document, Platform
from tests.life.stored_records import NotARecordError, StoredLog, read_log

_TOPIC_ID_LENGTH: Final = 22
_NEEDS_A_PERSON: Final = (
    "no-leader-replica",
    "stopped",
    "lost",
    "store-in-doubt",
    "copy-in-doubt",
    "failed-again",
    "hole",
    "log-divergence",
    "damaged",
    "compacted",
)
_DIVERGED: Final = "log-divergence"


@dataclass(frozen=True, slots=True)
class Answer:
    """A segment of a fetch, and what of it answers: `first` to `last`, under the decisions about histories."""

    segment_id: str
    first: int
    last: int
    log: StoredLog


@dataclass
class Comparison:
    """Of one platform. Objects never change, so each is read once. `compared`: records that were looked at."""

    platform: Platform
    oracle: Oracle
    compared: int = 0
    logs: dict[str, tuple[Place, StoredLog]] = field(default_factory=dict)
    expired: set[Place] = field(default_factory=set)
    """Partitions whose archive may begin later by retention."""
    _epochs: dict[Place, dict[int, set[int]]] = field(default_factory=dict)
    _begins: dict[Place, int] = field(default_factory=dict)
    _served: set[Place] = field(default_factory=set)
    _paths: dict[str, Path] = field(default_factory=dict)

    def forget_what_was_served(self) -> None:
        """The database was set back: what it had forgotten and cannot adopt is not served any more."""
        self._begins.clear()
        self._served.clear()

    def of_objects(self) -> Iterator[str]:
        """New logs of the store, finished or not: each record is one that consumers read there."""
        for path in sorted(self.platform.store.rglob("*.log")):
            segment_id = path.stem[21:]
            if segment_id in self.logs or "~" in path.name:
                continue
            place = (path.parents[1].name[-_TOPIC_ID_LENGTH:], int(path.parent.name))
            try:
                log = read_log(path)
            except NotARecordError as error:
                yield self._finding(place, f"object {path.name}: {error}")
                continue
            self.logs[segment_id] = (place, log)
            self._paths[segment_id] = path
            yield from self._of_records(place, path.name, log)

    def _of_records(self, place: Place, name: str, log: StoredLog) -> Iterator[str]:
        known = self._epochs.setdefault(place, {})
        wrong = []
        for record in log.records:
            self.compared += 1
            known.setdefault(record.offset, set()).add(record.leader_epoch)
            if self.oracle.knows(place, record.offset, record.leader_epoch) != record.digest:
                wrong.append(record.offset)
        if wrong:
            differ = f"{len(wrong)} of {len(log.records)} records are not what consumers read, {wrong[0]}..{wrong[-1]}"
            yield self._finding(place, f"object {name}: {differ}")
        if log.holes:
            yield self._finding(place, f"object {name} has holes: {log.holes}")

    def of_served(self, topic: str, place: Place, held: Sequence[Document]) -> Iterator[str]:
        """What a fetch of the whole partition gives; `held` is what the newest plan holds back."""
        topic_id, partition = place
        output = self.platform.directory / "fetched"
        said = self.platform.run("fetch", topic, str(partition), "--topic-id", topic_id, "--output", str(output))
        segments = said.document.get("segments", [])
        if not segments and said.code != 0:
            if place in self._served and place not in self.expired:
                yield self._finding(place, f"nothing can be fetched any more: {said.text.strip()}")
            return
        self._served.add(place)
        answers = list(self._answers(place, segments))
        for one in segments:
            if one["refused"] and not one["by_decision"] and "below the log start" not in one["refused"]:
                yield self._finding(place, f"{one['start_offset']}..{one['end_offset']} {one['refused']}")
            if one["path"] is not None:
                same = one["segment_id"] in self._paths and filecmp.cmp(
                    one["path"], self._paths[one["segment_id"]], shallow=False
                )
                if not same:
                    yield self._finding(place, f"{one['segment_id']} was fetched with other bytes than are stored")
                Path(one["path"]).unlink()
        yield from self._of_histories(place, answers, held)
        yield from self._of_gaps(place, answers)

    def _answers(self, place: Place, segments: Iterable[Document]) -> Iterator[Answer]:
        """A history begins where somebody decided so, also inside of a segment, and ends where the next one begins."""
        follows = self.platform.follows(*place)
        begins = dict(follows)
        for one in segments:
            if one["path"] is None or one["segment_id"] not in self.logs:
                continue
            later = [begin for history, begin in follows if history > one["history"]]
            last = min([one["end_offset"], *(begin - 1 for begin in later)])
            first = max(one["start_offset"], begins.get(one["history"], 0))
            if last >= first:
                yield Answer(one["segment_id"], first, last, self.logs[one["segment_id"]][1])

    def _of_histories(self, place: Place, answers: Sequence[Answer], held: Sequence[Document]) -> Iterator[str]:
        """One offset has one record; and it is the one that consumers have now, or the plan says that it is not."""
        answered: dict[int, int] = {}
        twice, replaced = [], []
        lineage = self.oracle.lineages.get(place)
        for answer in answers:
            for record in answer.log.records:
                if not answer.first <= record.offset <= answer.last:
                    continue
                if answered.setdefault(record.offset, record.leader_epoch) != record.leader_epoch:
                    twice.append(record.offset)
                now = lineage.epoch_at(record.offset) if lineage else None
                if now is not None and now != record.leader_epoch:
                    replaced.append(record.offset)
        if twice:
            yield self._finding(place, f"offsets {min(twice)}..{max(twice)} answer with two histories")
        if replaced and not any(_is(one, place) and one["reason"] == _DIVERGED for one in held):
            unsaid = f"offsets {min(replaced)}..{max(replaced)} are other records than consumers have now"
            yield self._finding(place, f"{unsaid}, and the plan does not say so")

    def _of_gaps(self, place: Place, answers: Sequence[Answer]) -> Iterator[str]:
        if not answers:
            return
        ranges = sorted((answer.first, answer.last) for answer in answers)
        lineage = self.oracle.lineages.get(place)
        begin = self._begins.setdefault(place, min(ranges[0][0], lineage.start if lineage else ranges[0][0]))
        missing = [] if place in self.expired or ranges[0][0] <= begin else [(begin, ranges[0][0] - 1)]
        reached = ranges[0][1]
        for (_, _), (first, last) in pairwise(ranges):
            if first > reached + 1:
                missing.append((reached + 1, first - 1))
            reached = max(reached, last)
        if not missing:
            return
        decided = sorted(self.platform.recorded_skips(*place))
        for gap in missing:
            if (left := _without(gap, decided)) is not None:
                yield self._finding(place, f"offsets {left[0]}..{left[1]} are missing, and nobody decided so")

    def of_silence(self, place: Place, rolled_end: int, plan: Document, copy: Document) -> str | None:
        """Records below `rolled_end` could have been copied: they are stored, or somebody was told why not."""
        named = [
            *plan.get("held_back", ()),
            *plan.get("partitions", ()),
            *copy.get("failed", ()),
            *copy.get("left", ()),
        ]
        named += [one for one in plan.get("errors", ()) if one.get("topic_id") is not None]
        if any(_is(one, place) for one in named):
            return None
        lineage = self.oracle.lineages[place]
        stored = self._epochs.get(place, {})
        for offset in range(rolled_end - 1, lineage.start - 1, -1):
            epoch = lineage.epoch_at(offset)
            if epoch is None or self.oracle.knows(place, offset, epoch) is None:
                continue
            if epoch in stored.get(offset, ()):
                return None
            return self._finding(
                place, f"offset {offset} has rolled and is replicated, is not stored, and nobody says so"
            )
        return None

    def of_words(self, place: Place, plan: Document, doctor: Document, ready: Document) -> Iterator[str]:
        """What waits for a person, nothing to copy before it: `doctor` names it, `ready` does not call it ready."""
        waits = [one for one in plan["held_back"] if _is(one, place) and needs_a_person(one)]
        if not waits or any(_is(one, place) for one in plan["partitions"]):
            return
        if any(_is(one, place) and one["tiers"] for one in doctor.get("partitions", ()) if one["topic_id"]):
            yield self._finding(place, f"doctor says that it tiers; the plan: {waits[0]['reason']}")
        if any(_is(one, place) and one["ready"] for one in ready.get("partitions", ())):
            yield self._finding(place, f"ready says that it is ready; the plan: {waits[0]['reason']}")

    def _finding(self, place: Place, sentence: str) -> str:
        name = self.oracle.names.get(place[0], place[0])
        return f"{self.platform.name}: {name}-{place[1]} ({place[0]}): {sentence}"


def needs_a_person(held: Document) -> bool:
    return held["reason"] in _NEEDS_A_PERSON


def _is(one: Document, place: Place) -> bool:
    return (one.get("topic_id"), one.get("partition")) == place


def _without(gap: tuple[int, int], decided: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """What of the gap no decision covers, from its first offset on."""
    first, last = gap
    for begin, end in decided:
        if begin <= first <= end:
            first = end + 1
    return (first, last) if first <= last else None
