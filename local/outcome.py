"""Compare the result of a copy, as the library returns it, with the brokers' own files."""

import filecmp
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from include.tiering.kafka.log_dirs.contract import Replica
from include.tiering.model.segments import TopicIdPartition, Verdict
from include.tiering.segments.contract import SegmentRow
from include.tiering.units import format_bytes

if TYPE_CHECKING:
    from include.tiering.app import App


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One partition: segments of its leader's replica, remote segments, and whether both have the same bytes."""

    partition: TopicIdPartition
    replica: Replica
    rows: Sequence[SegmentRow]
    epoch_bytes: Mapping[int, int]
    differences: Sequence[str] = field(default=())

    @property
    def rolled(self) -> int:
        return sum(not segment.active for segment in self.replica.segments)

    @property
    def eligible(self) -> int:
        return sum(segment.eligible for segment in self.replica.segments)

    @property
    def copied_bytes(self) -> int:
        return sum(row.metadata.segment_size_bytes for row in self.rows)

    @property
    def verdicts(self) -> Counter[Verdict]:
        return Counter(row.verdict for row in self.rows)

    @property
    def held(self) -> bool:
        """Whether every eligible segment was copied, passed the quality check, and reads back unchanged."""
        return self.eligible == len(self.rows) == self.verdicts[Verdict.PASSED] and not self.differences


def outcomes(app: "App", log_dirs: Mapping[int, Path], into: Path) -> list[PartitionOutcome]:
    """Return an outcome for each partition with a chosen replica; its segments are read back into `into`."""
    sizes = {size.topic_id_partition: size for size in app.sizes.partition_sizes()}
    found = []
    for replica in app.log_dirs.scan_all().replicas:
        partition = replica.topic_id_partition
        if not replica.chosen:
            continue
        rows = [row for row in app.adapters.stores.metadata.list_segments(partition) if row.metadata.is_finished]
        size = sizes.get(partition)
        epoch_bytes = {epoch.leader_epoch: epoch.size_bytes for epoch in size.leader_epochs} if size else {}
        source = log_dirs[replica.replica_id.broker_id] / str(partition)
        differences = tuple(_differences(app, partition, source, into)) if rows else ()
        found.append(PartitionOutcome(partition, replica, rows, epoch_bytes, differences))
    return found


def _differences(app: "App", partition: TopicIdPartition, source: Path, into: Path) -> Iterable[str]:
    """Return one line for each segment that does not read back as the broker's file."""
    for item in app.reading.fetch_partition(partition, into):
        metadata = item.row.metadata
        where = f"{partition} from offset {metadata.start_offset}"
        original = source / f"{metadata.start_offset:020d}.log"
        if item.path is None:
            yield f"{where}: not read back: {item.refused}"
        elif not filecmp.cmp(item.path, original, shallow=False):
            yield f"{where}: {item.path} differs from {original}"


def table(found: Sequence[PartitionOutcome]) -> Table:
    """Show per partition the segments (found, eligible, copied), bytes, verdicts, sizes by epoch, and the read-back."""
    shown = Table(title="tiering_copy", title_justify="left")
    shown.add_column("partition")
    for numbers in ("segments\nfound", "eligible", "copied", "bytes"):
        shown.add_column(numbers, justify="right")
    for words in ("verdicts", "size by epoch", "read back"):
        shown.add_column(words, no_wrap=True)
    for outcome in found:
        shown.add_row(
            str(outcome.partition),
            str(outcome.rolled),
            str(outcome.eligible),
            str(len(outcome.rows)),
            str(outcome.copied_bytes),
            ", ".join(f"{number} {verdict}" for verdict, number in outcome.verdicts.items()),
            ", ".join(f"{epoch}: {format_bytes(size)}" for epoch, size in outcome.epoch_bytes.items()),
            _read_back(outcome),
        )
    totals = (
        sum(outcome.rolled for outcome in found),
        sum(outcome.eligible for outcome in found),
        sum(len(outcome.rows) for outcome in found),
        sum(outcome.copied_bytes for outcome in found),
    )
    shown.add_section()
    shown.add_row(f"{len(found)} partitions", *map(str, totals))
    return shown


def _read_back(outcome: PartitionOutcome) -> str:
    if outcome.differences:
        return f"{len(outcome.differences)} DIFFER"
    return "equal" if outcome.rows else ""
