"""What the comparison of a cluster's life finds, each difference by an archive that has it."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doubles.record_batches import record, record_batch
from tests.life.comparison import Comparison
from tests.life.oracle import Lineage, Oracle
from tests.life.platform import Document, Platform, Said
from tests.life.stored_records import read_log

TOPIC, TOPIC_ID = "orders", "x" * 22
PLACE = (TOPIC_ID, 0)
BATCH = 10


def log(first: int, last: int, *, epoch: int = 0, value: bytes = b"value", without: int = -1) -> bytes:
    """Batches of ten records; `without` leaves out the batch that begins there."""
    return b"".join(
        record_batch(
            base,
            count=BATCH,
            leader_epoch=epoch,
            records=b"".join(record(delta, value + b"%d" % (base + delta)) for delta in range(BATCH)),
        )
        for base in range(first, last, BATCH)
        if base != without
    )


@dataclass
class Archive(Platform):
    """Answers `fetch` with what lies in its store, and `skip` with what was decided."""

    histories: dict[str, int] = field(default_factory=dict)
    skips: list[tuple[int, int]] = field(default_factory=list)

    def put(self, segment_id: str, content: bytes, *, history: int = 0) -> None:
        directory = self.store / f"{TOPIC}-{TOPIC_ID}" / "0"
        directory.mkdir(parents=True, exist_ok=True)
        first = int.from_bytes(content[:8], "big")
        (directory / f"{first:020d}-{segment_id}.log").write_bytes(content)
        self.histories[segment_id] = history

    def recorded_skips(self, topic_id: str, partition: int) -> list[tuple[int, int]]:
        return self.skips

    def run(self, *arguments: str) -> Said:
        return Said("fetch", 0, {"segments": [self._segment(path) for path in sorted(self.store.rglob("*.log"))]}, "")

    def _segment(self, path: Path) -> Document:
        found, segment_id = read_log(path), path.stem[21:]
        fetched = self.directory / segment_id
        fetched.write_bytes(path.read_bytes())
        return {
            "segment_id": segment_id,
            "start_offset": found.first_offset,
            "end_offset": found.last_offset,
            "history": self.histories[segment_id],
            "path": str(fetched),
            "refused": None,
            "by_decision": False,
        }


class Memory(Oracle):
    """Of consumers that read these logs one after the other; the last one is what the brokers have."""

    def __init__(self, directory: Path, *logs: bytes) -> None:
        super().__init__(SimpleNamespace())  # type: ignore[arg-type]
        for content in logs:
            path = directory / "read.log"
            path.write_bytes(content)
            found = read_log(path)
            lineage = Lineage(found.first_offset, found.last_offset + 1)
            for one in found.records:
                self._read.setdefault(PLACE, {}).setdefault(one.offset, {})[one.leader_epoch] = one.digest
                if not lineage.epochs or lineage.epochs[-1] != one.leader_epoch:
                    lineage.epochs.append(one.leader_epoch)
                    lineage.begins.append(one.offset)
            self.lineages[PLACE] = lineage


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive("brokers", tmp_path, SimpleNamespace(), ["*"], SimpleNamespace())  # type: ignore[arg-type]


def compared(archive: Archive, *read: bytes, held: list[Document] | None = None) -> list[str]:
    comparison = Comparison(archive, Memory(archive.directory, *read))
    found = [*comparison.of_objects(), *comparison.of_served(TOPIC, PLACE, held or [])]
    return [one.partition(": ")[2].partition(": ")[2] for one in found]


def test_an_archive_of_what_was_read_is_no_finding(archive: Archive) -> None:
    archive.put("a", log(0, 50))
    archive.put("b", log(50, 100))
    assert compared(archive, log(0, 200)) == []


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (log(0, 50, value=b"other"), "object {name}: 50 of 50 records are not what consumers read, 0..49"),
        (log(0, 50, epoch=3), "object {name}: 50 of 50 records are not what consumers read, 0..49"),
        (log(0, 120), "object {name}: 20 of 120 records are not what consumers read, 100..119"),
        (log(0, 50, without=20), "object {name} has holes: ((20, 29),)"),
    ],
    ids=["other values", "another epoch", "above the high watermark", "a hole"],
)
def test_an_object_that_differs(archive: Archive, content: bytes, finding: str) -> None:
    archive.put("a", content)
    name = next(archive.store.rglob("*.log")).name
    assert compared(archive, log(0, 100))[0] == finding.format(name=name)


def test_an_object_that_is_damaged(archive: Archive) -> None:
    archive.put("a", log(0, 50))
    path = next(archive.store.rglob("*.log"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    comparison = Comparison(archive, Memory(archive.directory, log(0, 100)))
    (found,) = comparison.of_objects()
    assert "wrong checksum of the batch at" in found


def test_two_histories_of_one_range(archive: Archive) -> None:
    old, new = log(0, 100), log(0, 50) + log(50, 150, epoch=2)
    archive.put("a", log(0, 100))
    archive.put("b", log(50, 150, epoch=2))
    assert compared(archive, old, new) == [
        "offsets 50..99 answer with two histories",
        "offsets 50..99 are other records than consumers have now, and the plan does not say so",
    ]
    archive.put("b", log(50, 150, epoch=2), history=1)
    archive.decisions.append({"decided": {"history": 1}, "from_offset": 50, "topic_id": TOPIC_ID, "partition": 0})
    assert compared(archive, old, new) == []


def test_replaced_records_that_nobody_names(archive: Archive) -> None:
    old, new = log(0, 100), log(0, 50) + log(50, 150, epoch=2)
    archive.put("a", old)
    held = [{"topic_id": TOPIC_ID, "partition": 0, "reason": "log-divergence"}]
    assert compared(archive, old, new, held=held) == []
    assert len(compared(archive, old, new)) == 1


def test_a_gap_that_nobody_decided_about(archive: Archive) -> None:
    archive.put("a", log(0, 50))
    archive.put("b", log(80, 100))
    archive.skips = [(50, 69)]
    assert compared(archive, log(0, 100)) == ["offsets 70..79 are missing, and nobody decided so"]
    archive.skips.append((70, 79))
    assert compared(archive, log(0, 100)) == []


def test_an_archive_that_lost_its_beginning(archive: Archive) -> None:
    archive.put("b", log(50, 100))
    assert compared(archive, log(0, 100)) == ["offsets 0..49 are missing, and nobody decided so"]


def test_a_partition_that_is_left_behind_in_silence(archive: Archive) -> None:
    archive.put("a", log(0, 50))
    comparison = Comparison(archive, Memory(archive.directory, log(0, 100)))
    assert list(comparison.of_objects()) == []
    nothing: Document = {"held_back": [], "partitions": [], "errors": []}
    silence = comparison.of_silence(PLACE, 80, nothing, {})
    assert silence is not None
    assert "offset 79 has rolled and is replicated, is not stored, and nobody says so" in silence
    assert comparison.of_silence(PLACE, 50, nothing, {}) is None
    named = {**nothing, "held_back": [{"topic_id": TOPIC_ID, "partition": 0}]}
    assert comparison.of_silence(PLACE, 80, named, {}) is None


@pytest.mark.parametrize(
    ("doctor_tiers", "is_ready", "findings"), [(True, False, 1), (False, True, 1), (False, False, 0)]
)
def test_what_waits_for_a_person_is_no_secret(
    archive: Archive, doctor_tiers: bool, is_ready: bool, findings: int
) -> None:
    where: dict[str, Any] = {"topic_id": TOPIC_ID, "partition": 0}
    plan = {"held_back": [{**where, "reason": "hole"}], "partitions": []}
    comparison = Comparison(archive, Memory(archive.directory, log(0, 10)))
    doctor = {"partitions": [{**where, "tiers": doctor_tiers}]}
    ready = {"partitions": [{**where, "ready": is_ready}]}
    assert len(list(comparison.of_words(PLACE, plan, doctor, ready))) == findings
