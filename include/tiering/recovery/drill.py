"""The result of a recovery drill, and its report, without I/O.

A drill does to one topic what a recovery would do after the database and all brokers were lost, beside the deployment
and without a change of it: metadata rebuilt from the store alone, verified, the topic restored, and read by consumers
from a throw-away broker. The records that consumers get are compared, segment by segment, with those of the restored
files, each of whose batches has its CRC-32C.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypedDict

from include.tiering.presentation import Presentation, Table, count
from include.tiering.units import format_bytes, format_duration


class DrillStep(StrEnum):
    """Steps of a drill, in order."""

    REBUILD = "rebuild"
    VERIFY = "verify"
    RESTORE = "restore"
    START = "start"
    READ = "read"


class DrillStepDocument(TypedDict):
    """A step that was done, and how long it took."""

    step: str
    seconds: float


class DrilledPartitionDocument(TypedDict):
    """One partition as consumers read it: records by read_uncommitted and by read_committed, and how many are equal."""

    partition: int
    records: int
    equal: int
    records_committed: int
    equal_committed: int
    differences: list[str]


class RecoveryNeedsDocument(TypedDict):
    """What the recovery of the topic, and by the same rate that of all topics in the store, needs."""

    topic_bytes: int
    store_bytes: int
    disk_bytes: int
    bytes_per_second: float
    topic_seconds: float
    store_seconds: float


class DrillDocument(TypedDict):
    """A recovery drill.

    `findings` says what is not as it should be, `skipped` which offsets are lost by a recorded decision, which is no
    finding; `kept` is the directory of its files, if kept.
    """

    topic: str
    kafka_version: str
    passed: bool
    seconds: float
    steps: list[DrillStepDocument]
    partitions: list[DrilledPartitionDocument]
    findings: list[str]
    skipped: list[str]
    needs: RecoveryNeedsDocument
    kept: str | None


@dataclass(frozen=True, slots=True)
class DrilledPartition:
    """What consumers got of one partition.

    Attributes:
        records: by read_uncommitted and by read_committed.
        equal: how many of them are in segments whose records are all as restored.
        differences: sentences with offsets.
    """

    partition: int
    records: tuple[int, int]
    equal: tuple[int, int]
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryNeeds:
    """What a recovery needs.

    Attributes:
        topic_bytes: logs of the topic.
        store_bytes: logs of all topics in the store.
        disk_bytes: what the restored topic has on disk.
        work_seconds: from the first request to the last restored byte.
    """

    topic_bytes: int
    store_bytes: int
    disk_bytes: int
    work_seconds: float

    @property
    def bytes_per_second(self) -> float:
        return self.topic_bytes / self.work_seconds if self.work_seconds else 0.0

    @property
    def store_seconds(self) -> float:
        """How long all topics would take at this rate, one after another on this host."""
        return self.store_bytes / self.bytes_per_second if self.bytes_per_second else 0.0


@dataclass(frozen=True, slots=True)
class DrillReport:
    """A drill.

    Attributes:
        steps: those that were done, each with its seconds.
        partitions: as consumers read them; empty if the topic could not be restored.
        findings: what is wrong, each a sentence that names the segment or partition.
        skipped: sentences about offsets that no copy has, because a recorded decision skips them.
        kept: the directory of the drill; None if it was removed.
    """

    topic: str
    kafka_version: str
    steps: tuple[tuple[DrillStep, float], ...]
    partitions: tuple[DrilledPartition, ...]
    findings: tuple[str, ...]
    needs: RecoveryNeeds
    skipped: tuple[str, ...] = ()
    kept: Path | None = None

    @property
    def has_passed(self) -> bool:
        """Whether everything was restored, and every record is equal."""
        return bool(self.partitions) and not self.findings and not any(each.differences for each in self.partitions)

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.steps)

    @property
    def records(self) -> int:
        """Records that are equal, as a consumer with read_uncommitted got them."""
        return sum(each.equal[0] for each in self.partitions)


def said_of_drill(report: DrillReport) -> str:
    """Return a sentence about the result, for the event log."""
    took = format_duration(report.seconds)
    if report.has_passed:
        records = count(report.records, "record")
        skipped = f"; {'; '.join(report.skipped)}" if report.skipped else ""
        return f"passed: {records} equal, {format_bytes(report.needs.topic_bytes)} recovered in {took}{skipped}"
    wrong = [*report.findings, *(text for each in report.partitions for text in each.differences)]
    first = wrong[0] if wrong else "nothing of it could be restored"
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"FAILED after {took}: {first}{more}"


_COLUMNS: Final = ("partition>", "records>", "equal>", "read_committed>", "equal>", "state")


def present_drill(report: DrillReport) -> Presentation:
    """Present a drill. It is `ok` only if it has passed."""
    what = f"{report.topic}: the recovery drill on Kafka {report.kafka_version}"
    return Presentation(
        lambda: _document(report),
        lambda: _tables(report),
        f"{what} {said_of_drill(report)}; {_needed(report)}",
        ok=report.has_passed,
    )


def _needed(report: DrillReport) -> str:
    needs = report.needs
    disk, store = format_bytes(needs.disk_bytes), format_bytes(needs.store_bytes)
    took, rate = format_duration(needs.store_seconds), format_bytes(int(needs.bytes_per_second))
    return (
        f"a recovery of the topic needs {disk} of disk, and that of all {store} in the store about {took} at {rate}/s"
    )


def _tables(report: DrillReport) -> tuple[Table, ...]:
    steps = tuple((step.value, format_duration(seconds)) for step, seconds in report.steps)
    rows = tuple(
        (
            str(each.partition),
            f"{each.records[0]:,}",
            f"{each.equal[0]:,}",
            f"{each.records[1]:,}",
            f"{each.equal[1]:,}",
            "NOT EQUAL" if each.differences else "equal",
        )
        for each in report.partitions
    )
    wrong = [*report.findings, *(text for each in report.partitions for text in each.differences)]
    tables = (
        Table("steps", ("step", "time>"), steps),
        Table("read back", _COLUMNS, rows),
        Table("findings", ("what",), tuple((text,) for text in wrong)),
        Table("skipped", ("what",), tuple((text,) for text in report.skipped)),
    )
    return tuple(table for table in tables if table.rows)


def _document(report: DrillReport) -> DrillDocument:
    needs = report.needs
    return {
        "topic": report.topic,
        "kafka_version": report.kafka_version,
        "passed": report.has_passed,
        "seconds": round(report.seconds, 3),
        "steps": [{"step": step.value, "seconds": round(seconds, 3)} for step, seconds in report.steps],
        "partitions": [
            {
                "partition": each.partition,
                "records": each.records[0],
                "equal": each.equal[0],
                "records_committed": each.records[1],
                "equal_committed": each.equal[1],
                "differences": list(each.differences),
            }
            for each in report.partitions
        ],
        "findings": list(report.findings),
        "skipped": list(report.skipped),
        "needs": {
            "topic_bytes": needs.topic_bytes,
            "store_bytes": needs.store_bytes,
            "disk_bytes": needs.disk_bytes,
            "bytes_per_second": round(needs.bytes_per_second, 1),
            "topic_seconds": round(needs.work_seconds, 3),
            "store_seconds": round(needs.store_seconds, 3),
        },
        "kept": None if report.kept is None else str(report.kept),
    }
