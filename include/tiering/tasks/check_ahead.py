"""Segments of one partition, opened and checked one ahead of the copy.

A batch is one stream, which sends nothing while it opens and checks. So a thread of the batch opens and checks the
segment after the one that is sent, behind a queue that is bounded by requests and bytes. A segment weighs its size:
its check reads so much into the host's memory, where it is to be found again when it is sent. What is larger than the
bound is not read ahead.

What was opened ahead is as it was then. If that is some time ago it is compared with the source before it is used; the
copy compares it again before FINISHED, whatever its age.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, Protocol

from include.tiering.clock import Clock
from include.tiering.errors import QueueClosedError, TieringError
from include.tiering.log_source.contract import CheckedSegment, LogSegment, OpenSegment, ReplicaId, SourceFingerprint
from include.tiering.observability import for_partition, get_logger
from include.tiering.quota.byte_bounded_queue import NO_BYTE_BOUND, ByteBoundedQueue, Taken
from include.tiering.work.contract import PlannedSegment

_log: Final = get_logger(__name__)

FRESH_SECONDS: Final = 1.0
"""What was opened no longer ago than this is taken as it is."""

_AHEAD: Final = 1


class SegmentOpener(Protocol):
    """The part of `LogSource` that a copy needs."""

    def open_segment(self, replica_id: ReplicaId, base_offset: int) -> AbstractContextManager[OpenSegment]: ...


class CheckAhead:
    """A `SegmentOpener` over another one, for one batch. `max_bytes` bounds what is sent and checked together.

    The source is asked by two threads at once.
    """

    def __init__(self, source: SegmentOpener, clock: Clock, *, max_bytes: int = NO_BYTE_BOUND) -> None:
        self._source = source
        self._clock = clock
        self._max_bytes = max_bytes
        self._partition: _Partition | None = None

    @contextmanager
    def expecting(
        self, replica_id: ReplicaId, planned: Sequence[PlannedSegment], worth_while: Callable[[], bool]
    ) -> Iterator[None]:
        """Within, these segments are asked for in this order. Nothing more is checked once it is not worth while."""
        partition = _Partition(self._source, self._clock, replica_id, planned, self._max_bytes, worth_while)
        self._partition = partition
        try:
            with partition:
                yield
        finally:
            self._partition = None

    @contextmanager
    def open_segment(self, replica_id: ReplicaId, base_offset: int) -> Iterator[OpenSegment]:
        """As the source does. What went wrong ahead of time is raised here, or by `check`."""
        taken = self._partition.take(replica_id, base_offset) if self._partition else None
        if taken is None:
            with self._source.open_segment(replica_id, base_offset) as opened:
                yield opened
            return
        with taken as ahead, ahead:
            opened = ahead.opened.result()
            if self._clock.monotonic() - ahead.opened_at > FRESH_SECONDS:
                opened.recheck()
            yield _CheckedAhead(opened, ahead.checked)


class _Ahead:
    """One segment, closed at the end of `with`. `opened` and `checked` hold what came of it, errors included."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.files = ExitStack()
        self.opened: Future[OpenSegment] = Future()
        self.checked: Future[CheckedSegment] = Future()
        self.opened_at = 0.0

    def fail(self, error: Exception) -> None:
        for future in (self.opened, self.checked):
            if not future.done():
                future.set_exception(error)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_error: object) -> None:
        """Not before the check pass is over: it reads the files."""
        wait([self.checked])
        self.files.close()


class _Partition:
    """The thread of one partition, from `with` to its end."""

    def __init__(
        self,
        source: SegmentOpener,
        clock: Clock,
        replica_id: ReplicaId,
        planned: Sequence[PlannedSegment],
        max_bytes: int,
        worth_while: Callable[[], bool],
    ) -> None:
        self._source = source
        self._clock = clock
        self._replica_id = replica_id
        self._planned = planned
        self._worth_while = worth_while
        self._queue: ByteBoundedQueue[_Ahead] = ByteBoundedQueue(_AHEAD, max_bytes)
        self._taken_up_to = -1
        self._thread = threading.Thread(target=self._work, name="check-ahead", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._queue.close()
        self._thread.join()
        while (taken := self._next()) is not None:
            with taken as ahead, ahead:
                pass

    def take(self, replica_id: ReplicaId, base_offset: int) -> Taken[_Ahead] | None:
        """The segment, waiting for it if it is being worked on; None if it is not ahead."""
        if replica_id != self._replica_id or base_offset <= self._taken_up_to:
            return None
        while (taken := self._next()) is not None:
            self._taken_up_to = taken.item.base_offset
            if taken.item.base_offset == base_offset:
                return taken
            with taken as passed_over, passed_over:
                pass
        return None

    def _next(self) -> Taken[_Ahead] | None:
        try:
            return self._queue.get()
        except QueueClosedError:
            return None

    def _work(self) -> None:
        try:
            for segment in self._planned:
                ahead = _Ahead(segment.base_offset)
                self._queue.put(ahead, segment.size_bytes)
                self._prepare(ahead)
                if ahead.checked.exception() is not None or not self._worth_while():
                    return
        except QueueClosedError:
            return
        finally:
            self._queue.close()

    def _prepare(self, ahead: _Ahead) -> None:
        """Whatever goes wrong waits in the futures for who asks for the segment."""
        ahead.opened_at = self._clock.monotonic()
        try:
            opened = ahead.files.enter_context(self._source.open_segment(self._replica_id, ahead.base_offset))
            ahead.opened.set_result(opened)
            ahead.checked.set_result(opened.check())
        except TieringError as error:
            ahead.fail(error)
        except Exception as error:
            logger = for_partition(_log, self._replica_id.topic_id_partition)
            logger.exception("the check ahead broke at %s", ahead.base_offset)
            ahead.fail(error)


class _CheckedAhead:
    """An `OpenSegment` whose check pass runs, or ran, in another thread."""

    def __init__(self, opened: OpenSegment, checked: Future[CheckedSegment]) -> None:
        self._opened = opened
        self._checked = checked

    @property
    def segment(self) -> LogSegment:
        return self._opened.segment

    @property
    def fingerprint(self) -> SourceFingerprint:
        return self._opened.fingerprint

    def check(self) -> CheckedSegment:
        return self._checked.result()

    def recheck(self) -> None:
        self._opened.recheck()
