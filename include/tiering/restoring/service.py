"""The service that restores topics from remote storage into another place, under the fetch quota."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import SettingError, printable
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ownership import StorePlace
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.quotas.contract import Quotas
from include.tiering.reading.files import require_beside
from include.tiering.reading.plan_scan import (
    EARLIEST,
    LATEST,
    Bound,
    BoundKind,
    PartitionScan,
    ScanPlan,
    ScanRequest,
)
from include.tiering.reading.scan import SegmentRange
from include.tiering.reading.served_log import served_parts
from include.tiering.reading.service import ReadService
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.parallel_reads import MOST_RANGES
from include.tiering.restoring.copy_elsewhere import OtherStorage, claim_other, present_elsewhere
from include.tiering.restoring.forms import RestoreForm
from include.tiering.restoring.metrics import FAILED_SEGMENTS, RESTORED_BYTES
from include.tiering.restoring.plan import (
    PartitionLog,
    PartitionRestore,
    PartKey,
    ReadingCost,
    RestoredPart,
    RestorePart,
    RestorePlan,
    RestoreRequest,
    as_entered,
    by_partition,
    continues_at,
    parts_of,
    requests_of,
    require_same,
    said_of_ends,
    scan_bounds,
    wanted_offsets,
)
from include.tiering.restoring.report import RestoreReport
from include.tiering.restoring.restore_segments import COMPLETION, FailedPart, OnBytes, SegmentRestorer, complete
from include.tiering.restoring.target import Resolved, RestoreTarget, StepObserver, identity_of, opened, read_done
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.settings import TieringSettings
from include.tiering.telemetry.metrics import MetricsRecorder, ignore
from include.tiering.units import format_bytes

_SPARE_RATIO: Final = 0.02
"""Space for indexes and snapshots, as a share of the logs."""


class RestoreService:
    """Restores parts of topics.

    Args:
        cluster_id: of the deployment.
        place: returns the place of the storage that is read.
        log_dirs: the brokers' log directories, in which nothing is written.
        reading: plans what is read.
        effective: returns the settings overridden by the current dynamic configs.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        place: Callable[[], StorePlace],
        log_dirs: Sequence[Path],
        metadata: RemoteLogMetadata,
        storage: RemoteStorage,
        quotas: Quotas,
        reading: ReadService,
        effective: Callable[[], TieringSettings],
        recorder: MetricsRecorder,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._cluster_id = cluster_id
        self._place = place
        self._log_dirs = log_dirs
        self._metadata = metadata
        self._storage = storage
        self._quotas = quotas
        self._reading = reading
        self._effective = effective
        self._recorder = recorder
        self._clock = clock
        self._random_bytes = random_bytes

    def partitions_of(
        self, topic: str, numbers: Sequence[int] = (), topic_id: str | None = None
    ) -> tuple[TopicIdPartition, ...]:
        """Return partitions of a topic that have remote data, ascending; without `numbers` all of them.

        Raises:
            SettingError: nothing of the topic, or of a partition, is remote; or several topics have this name.
        """
        named = [each for each in self._metadata.partitions() if each.topic == topic]
        named = [each for each in named if topic_id in (None, str(each.topic_id))]
        if not named:
            raise SettingError(f"{printable(topic)}: nothing of it is in remote storage; ./tiering sizes lists what is")
        if len(ids := sorted({str(each.topic_id) for each in named})) > 1:
            raise SettingError(f"{topic}: topics of this name have the ids {', '.join(ids)}: name one, by --topic-id")
        found = {each.partition: each for each in named}
        if missing := sorted(set(numbers) - found.keys()):
            raise SettingError(f"{topic}-{missing[0]}: nothing of it is in remote storage")
        return tuple(found[number] for number in sorted(set(numbers) or found))

    def requested(
        self,
        topic: str,
        *,
        partitions: Sequence[int] = (),
        topic_id: str | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        from_time_ms: int | None = None,
        to_time_ms: int | None = None,
        form: RestoreForm = RestoreForm.SEGMENTS,
        committed: bool = False,
        place: StorePlace | None = None,
        client: str = "",
    ) -> RestoreRequest:
        """Return the request for what a person names; ends are exclusive, times are UTC milliseconds.

        Raises:
            SettingError: as `partitions_of`; an offset and a time for one end; no offset or time between both ends; an
                offset for several partitions; or committed records as segments.
        """
        if committed and form is not RestoreForm.PARQUET:
            raise SettingError(
                "segments have all records, and brokers leave out aborted ones: committed is for Parquet"
            )
        if (place is None) is (form is RestoreForm.STORAGE):
            raise SettingError("form storage, and the settings of another storage, belong together")
        if place is not None and _real(place).overlaps(_real(self._place())):
            raise SettingError(f"{place} overlaps the storage that is read: name another bucket, prefix or directory")
        found = self.partitions_of(topic, partitions, topic_id)
        if len(found) > 1 and (from_offset is not None or to_offset is not None):
            raise SettingError("an offset needs one partition: offsets of several partitions have no relation")
        start, end = _bound("begin", from_offset, from_time_ms), _bound("end", to_offset, to_time_ms)
        if start is not None and end is not None and start.kind is end.kind and start.value >= end.value:
            raise SettingError(f"nothing is wanted: the begin {start.value} is not below the end {end.value}")
        return RestoreRequest(
            found,
            start or EARLIEST,
            end or LATEST,
            form,
            committed=committed,
            place=place,
            client=client,
            names_none=not partitions,
        )

    def plan(self, request: RestoreRequest, directory: Path, *, other: OtherStorage | None = None) -> RestorePlan:
        """Return what a run would read and write. The directory, and the other storage, are only read.

        Offsets and times are resolved once: a run that continues another one restores the same offsets.

        Raises:
            SettingError: the directory holds something else, another restore, or segments that do not fit the remote
                log any more.
            RemoteStorageError: the store refused or failed.
        """
        self._require_beside(directory, request.place)
        resolved, done = read_done(directory, identity_of(request, self._cluster_id))
        request = request.continued(() if resolved is None else resolved.offsets)
        if other is not None:
            done = present_elsewhere(other, request.partitions, done)
        return self._plan(request, resolved, done)

    def run(
        self,
        request: RestoreRequest,
        directory: Path,
        *,
        other: OtherStorage | None = None,
        on_planned: Callable[[RestorePlan], None] = ignore,
        on_bytes: OnBytes = ignore,
        stop: Callable[[], bool] = lambda: False,
        observe: StepObserver = ignore,
    ) -> RestoreReport:
        """Restore what is not restored yet.

        Args:
            request: what is wanted.
            directory: of the restore; made if it is absent.
            other: the other storage, for `RestoreForm.STORAGE`.
            on_planned: called before anything of a log is read.
            on_bytes: called from several threads with how many more bytes of logs were read.
            stop: if it returns True, the run ends with SendingStoppedError, and the next one continues.
            observe: called after each step.

        Raises:
            SettingError: as `plan`; or another process restores into the directory, or it has too little space.
            SendingStoppedError: the run was stopped.
            RemoteStorageError: the store does not answer.
        """
        began = self._clock.monotonic()
        self._require_beside(directory, request.place)
        identity = identity_of(request, self._cluster_id)
        with opened(directory, identity, observe=observe) as target:
            request = request.continued(() if target.resolved is None else target.resolved.offsets)
            if other is not None:
                target.done = present_elsewhere(other, request.partitions, target.done)
            plan = self._plan(request, target.resolved, target.done)
            on_planned(plan)
            _require_space(directory, plan)
            target.begin(identity, Resolved(plan.wanted, str(Uuid.random(self._random_bytes))))
            if other is not None:
                now_ms, random_bytes = self._clock.now_ms(), self._random_bytes
                claim_other(other, target, self._cluster_id, now_ms=now_ms, random_bytes=random_bytes)
            failed = self._restore(target, plan, other, on_bytes, stop)
            done = by_partition(target.done)
            partitions = tuple(replace(each, done=done[each.partition.partition]) for each in plan.partitions)
            whole = [each for each in partitions if not each.left]
            if request.form is RestoreForm.SEGMENTS:
                complete(target, whole, all_are_complete=len(whole) == len(partitions))
        return RestoreReport(plan, directory, partitions, failed, self._clock.monotonic() - began)

    def _require_beside(self, directory: Path, other: StorePlace | None) -> None:
        """Raise SettingError if what is written would be in a directory of a broker, or of the storage that is read."""
        require_beside(directory, (*self._log_dirs, self._place().directory))
        if other is not None and other.directory is not None:
            require_beside(directory, (other.directory,))
            require_beside(other.directory, self._log_dirs)

    def _restore(
        self,
        target: RestoreTarget,
        plan: RestorePlan,
        other: OtherStorage | None,
        on_bytes: OnBytes,
        stop: Callable[[], bool],
    ) -> tuple[FailedPart, ...]:
        target.publish_entered()
        target.require_own(COMPLETION)
        client = plan.request.client
        restorer = SegmentRestorer(
            self._storage, self._quotas, target, client, plan.request.form, other, on_bytes, stop
        )
        failed = []
        for result in restorer.restored(plan.left, at_once=self._effective().read.max_segments):
            if isinstance(result, FailedPart):
                failed.append(result)
                self._recorder.add(FAILED_SEGMENTS, 1, plan.topic)
            else:
                self._recorder.add(RESTORED_BYTES, result.log_bytes, plan.topic)
        target.remove_partial()
        return tuple(failed)

    def _plan(
        self, request: RestoreRequest, resolved: Resolved | None, done: dict[PartKey, RestoredPart]
    ) -> RestorePlan:
        logs = {partition: stored_log(self._metadata, partition) for partition in request.partitions}
        restored_of = by_partition(done)
        scans, said, continued = [], [], {}
        for partition, log in logs.items():
            number, bounds = partition.partition, (request.start, request.end)
            if resolved is not None:
                if number not in resolved.offsets:
                    said.append(f"{partition}: nothing of it was in remote storage when this restore began")
                if (offsets := resolved.offsets.get(number)) is None:
                    continue
                restored = restored_of[number].values()
                first = continues_at(offsets, restored, log)
                earliest = max(first, log.parts[0].first_offset if log.parts else first)
                if ends := [part.last_offset + 1 for part in restored if part.last_offset < earliest]:
                    continued[partition] = max(ends)
                if first > offsets.last:
                    continue
                bounds = scan_bounds(first, offsets)
            scans.append(PartitionScan(partition, *bounds))
        scan = self._reading.plan_scan(
            ScanRequest(tuple(scans), committed=request.committed, fail_on_data_loss=False, whole_logs=True),
            request.client,
        )
        said += scan.said
        parts = parts_of(
            scan,
            self._rows(scan, logs),
            whole=request.form is RestoreForm.STORAGE,
            continued=continued,
        )
        wanted = dict(resolved.offsets) if resolved is not None else _wanted(request, logs, scan)
        partitions = []
        for partition, log in logs.items():
            if (offsets := wanted.get(partition.partition)) is not None:
                there = restored_of[partition.partition]
                each = PartitionRestore(partition, offsets, as_entered(parts.get(partition, ()), there.values()), there)
                partitions += [each] if each.parts or each.restored else []
                said += [f"{partition}: {sentence}" for sentence in said_of_ends(log, offsets)]
        if not partitions and not said:
            said.append(f"{request.partitions[0].topic}: it has no record in the wanted offsets and times")
        require_same(partitions, whole=request.form is RestoreForm.STORAGE)
        left = [part for each in partitions for part in each.left]
        return RestorePlan(request, tuple(partitions), self._cost(left, request.client), tuple(said), wanted)

    def _rows(
        self, scan: ScanPlan, logs: Mapping[TopicIdPartition, PartitionLog]
    ) -> dict[TopicIdPartition, list[SegmentRow]]:
        """Return the segments of each partition, with those that were copied and verified since the logs were read."""
        known = {
            partition: {row.metadata.remote_log_segment_id: row for row in log.rows} for partition, log in logs.items()
        }
        for segment_id in (each.segment.remote_log_segment_id for task in scan.tasks for each in task):
            rows = known[segment_id.topic_id_partition]
            if segment_id not in rows and (row := self._metadata.segment(segment_id)) is not None:
                rows[segment_id] = row
        return {partition: list(rows.values()) for partition, rows in known.items()}

    def _cost(self, parts: Sequence[RestorePart], client: str) -> ReadingCost:
        ranges = tuple(
            SegmentRange(part.segment, 0, part.size_bytes, part.segment.start_offset, part.segment.end_offset)
            for part in parts
        )
        requests, prices = requests_of(parts), self._effective().prices.table()
        return ReadingCost(
            len(parts),
            sum(part.size_bytes for part in parts),
            requests,
            self._reading.least_seconds(ScanPlan((ranges,), requests), client),
            None if prices.get_requests is None else prices.get_requests * requests / 1000,
            prices.currency,
        )


def stored_log(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> PartitionLog:
    """Read what is stored of a partition."""
    rows, skipped = metadata.list_segments(partition), metadata.skipped_offsets(partition)
    start = metadata.retention_state(partition).log_start_offset
    parts = served_parts(rows, metadata.divergences(partition), skipped, log_start_offset=start)
    return PartitionLog(rows, parts, skipped, start)


def _real(place: StorePlace) -> StorePlace:
    """Return a place without links in its path."""
    return place if place.directory is None else replace(place, url=place.directory.resolve().as_uri())


def _bound(which: str, offset: int | None, time_ms: int | None) -> Bound | None:
    if offset is not None and time_ms is not None:
        raise SettingError(f"the {which} is named by an offset and by a time: leave one of them out")
    if offset is not None:
        return Bound(BoundKind.OFFSET, offset)
    return None if time_ms is None else Bound(BoundKind.TIMESTAMP, time_ms)


def _wanted(
    request: RestoreRequest, logs: Mapping[TopicIdPartition, PartitionLog], scan: ScanPlan
) -> dict[int, OffsetRange | None]:
    """Return the wanted offsets of each partition of which something is in remote storage."""
    scanned: dict[TopicIdPartition, OffsetRange] = {}
    for each in (each for task in scan.tasks for each in task):
        partition = each.segment.topic_id_partition
        first = scanned[partition].first if partition in scanned else each.first_offset
        scanned[partition] = OffsetRange(first, each.last_offset)
    return {
        partition.partition: wanted_offsets(request, log, scanned.get(partition))
        for partition, log in logs.items()
        if log.parts or log.unserved
    }


def _require_space(directory: Path, plan: RestorePlan) -> None:
    """Raise SettingError if the logs that are left would not fit."""
    size_bytes = plan.cost.size_bytes
    if plan.request.form is RestoreForm.STORAGE:
        # Only logs that are under way are on the disk.
        size_bytes = MOST_RANGES * max((part.size_bytes for part in plan.left), default=0)
    needed_bytes, free_bytes = int(size_bytes * (1 + _SPARE_RATIO)), shutil.disk_usage(directory).free
    if needed_bytes > free_bytes:
        raise SettingError(
            f"{directory} has {format_bytes(free_bytes)} free, and the restore needs {format_bytes(needed_bytes)}: name"
            " a directory with more space, or restore fewer partitions or offsets"
        )
