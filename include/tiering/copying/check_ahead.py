"""Open and check the next segment while the current one is sent.

A batch is one stream, which sends nothing while it opens and checks a segment. If the segment is not in the host's page
cache, this may take as long as sending. So as soon as a segment is checked, the batch sends it, and a second thread
opens and checks the next one. The segments pass through a queue that is bounded by requests and bytes. A segment counts
with its size, because its check reads that many bytes into the page cache, from where they are sent. A segment that
does not fit into the queue is opened when it is needed.

The next segment is checked ahead only if the last segment that the batch finished was copied at less than
`BUSY_BYTES_PER_SECOND`. At this or a higher rate this machine alone limits the stream, and a check in a second thread
would slow the stream down by sharing the interpreter with it.

A segment may change after it was opened ahead. If it was opened more than `FRESH_SECONDS` ago, it is compared with the
source before it is used, unless its check failed. The copy compares it again before FINISHED in any case.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, Protocol

from include.tiering.clock import Clock
from include.tiering.errors import QueueFullError
from include.tiering.kafka.log_dirs.contract import (
    CheckedSegment,
    LogSegment,
    OpenSegment,
    ReplicaId,
    SourceFingerprint,
)
from include.tiering.quotas.byte_bounded_queue import NO_BYTE_BOUND, ByteBoundedQueue, Taken
from include.tiering.runs.contract import PlannedSegment
from include.tiering.units import MIB

FRESH_SECONDS: Final = 1.0
"""A segment that was opened at most this long ago is used without another comparison."""

BUSY_BYTES_PER_SECOND: Final = 256 * MIB
"""A copy at this rate or a higher one was limited by this machine, not by the store or a quota."""

_AHEAD: Final = 1
_THREADS: Final = 1


class SegmentOpener(Protocol):
    """The part of `LogSource` that a copy needs."""

    def open_segment(self, replica_id: ReplicaId, base_offset: int) -> AbstractContextManager[OpenSegment]: ...


class CheckAhead:
    """A `SegmentOpener` for one batch that opens segments of `source`, and one segment ahead.

    A segment is opened ahead only if the segment that is being sent has fewer than `max_bytes` bytes. The thread of the
    batch and the thread that checks ahead read `source` at the same time.
    """

    def __init__(self, source: SegmentOpener, clock: Clock, *, max_bytes: int = NO_BYTE_BOUND) -> None:
        self._source = source
        self._clock = clock
        self._max_bytes = max_bytes
        self._partition: _Partition | None = None
        self._bytes_per_second = float("inf")

    @contextmanager
    def expecting(
        self, replica_id: ReplicaId, planned: Sequence[PlannedSegment], worth_while: Callable[[], bool]
    ) -> Iterator[None]:
        """Announce that these segments will be opened in this order inside the context.

        `worth_while` is called before a segment is opened ahead; if it returns False, the segment is not opened ahead.
        """

        def begin() -> bool:
            return self._bytes_per_second < BUSY_BYTES_PER_SECOND and worth_while()

        with ThreadPoolExecutor(_THREADS, "check-ahead") as thread:
            queue: ByteBoundedQueue[_Ahead] = ByteBoundedQueue(_AHEAD, self._max_bytes)
            self._partition = _Partition(self._source, self._clock, replica_id, planned, begin, queue, thread)
            try:
                yield
            finally:
                self._partition.close()
                self._partition = None

    @contextmanager
    def open_segment(self, replica_id: ReplicaId, base_offset: int) -> Iterator[OpenSegment]:
        """Open a segment as the source does. An error of opening ahead is raised here, of checking by `check`."""
        if self._partition is None or not self._partition.expects(replica_id, base_offset):
            with self._source.open_segment(replica_id, base_offset) as opened:
                yield opened
            return
        began = self._clock.monotonic()
        with self._partition.open(base_offset) as opened:
            yield opened
        self._bytes_per_second = opened.segment.size_bytes / max(self._clock.monotonic() - began, 1e-9)


class _Ahead:
    """One segment, closed at the end of `with`. `opened` and `checked` hold results or errors of the second thread."""

    opened: Future[OpenSegment]
    checked: Future[CheckedSegment]

    def __init__(self, planned: PlannedSegment, opened_at: float) -> None:
        self.base_offset = planned.base_offset
        self.opened_at = opened_at
        self.files = ExitStack()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_error: object) -> None:
        """Close the files once the check pass, which reads them, is over."""
        wait([self.checked])
        self.files.close()


class _Partition:
    def __init__(
        self,
        source: SegmentOpener,
        clock: Clock,
        replica_id: ReplicaId,
        planned: Sequence[PlannedSegment],
        worth_while: Callable[[], bool],
        queue: ByteBoundedQueue[_Ahead],
        thread: ThreadPoolExecutor,
    ) -> None:
        self._source = source
        self._clock = clock
        self._replica_id = replica_id
        self._planned = {segment.base_offset: segment for segment in planned}
        self._following = dict(zip(self._planned, planned[1:], strict=False))
        self._worth_while = worth_while
        self._queue = queue
        self._thread = thread

    def expects(self, replica_id: ReplicaId, base_offset: int) -> bool:
        return replica_id == self._replica_id and base_offset in self._planned

    @contextmanager
    def open(self, base_offset: int) -> Iterator[OpenSegment]:
        taken = self._ahead(base_offset)
        if taken is None:
            # The queue is empty, so the segment fits; it passes through the queue only to be counted.
            self._admit(self._planned[base_offset])
            with self._queue.get(0), self._source.open_segment(self._replica_id, base_offset) as opened:
                yield _Expected(opened, opened.check, lambda: self._go_ahead(base_offset))
            return
        with taken as ahead, ahead:
            opened = ahead.opened.result()
            if self._clock.monotonic() - ahead.opened_at > FRESH_SECONDS and ahead.checked.exception() is None:
                # After a failed check nothing is compared: damage would be reported as a change, which is retriable.
                opened.recheck()
            yield _Expected(opened, ahead.checked.result, lambda: self._go_ahead(base_offset))

    def close(self) -> None:
        while len(self._queue):
            with self._queue.get(0) as ahead, ahead:
                pass

    def _ahead(self, base_offset: int) -> Taken[_Ahead] | None:
        """Return the segment if it was opened ahead; if a different segment was, close it and return None."""
        if not len(self._queue):
            return None
        taken = self._queue.get(0)
        if taken.item.base_offset == base_offset:
            return taken
        with taken as passed_over, passed_over:
            return None

    def _go_ahead(self, base_offset: int) -> None:
        following = self._following.get(base_offset)
        if following is None or not self._worth_while():
            return
        try:
            ahead = self._admit(following)
        except QueueFullError:
            return
        opening = self._source.open_segment(self._replica_id, following.base_offset)
        ahead.opened = self._thread.submit(ahead.files.enter_context, opening)
        ahead.checked = self._thread.submit(lambda: ahead.opened.result().check())

    def _admit(self, planned: PlannedSegment) -> _Ahead:
        """Put the segment into the queue.

        Raises:
            QueueFullError: it does not fit now.
        """
        ahead = _Ahead(planned, self._clock.monotonic())
        self._queue.put(ahead, planned.size_bytes, 0)
        return ahead


class _Expected:
    """An `OpenSegment` with its own `check`, which calls `then` after the check."""

    def __init__(self, opened: OpenSegment, check: Callable[[], CheckedSegment], then: Callable[[], None]) -> None:
        self._opened = opened
        self._check = check
        self._then = then

    @property
    def segment(self) -> LogSegment:
        return self._opened.segment

    @property
    def fingerprint(self) -> SourceFingerprint:
        return self._opened.fingerprint

    def check(self) -> CheckedSegment:
        checked = self._check()
        self._then()
        return checked

    def recheck(self) -> None:
        self._opened.recheck()
