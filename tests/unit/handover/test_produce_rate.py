"""How fast producers are, by the segments of a log: what a hand-over's disks must have room for."""

import pytest

from include.tiering.handover.run_checks import bytes_per_second
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment
from include.tiering.model.leader_epochs import LeaderEpochs

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
MB = 1_000_000


def log(*segments: tuple[int, float]) -> list[LogSegment]:
    """(bytes, hours since its last record) of each segment; the last one is the active one."""
    epochs = LeaderEpochs.of([(0, 0)])
    active = len(segments) - 1
    return [
        LogSegment(
            10 * number,
            10 * number + 9,
            size_bytes,
            -1 if hours_ago == NO_TIME else NOW_MS - int(hours_ago * HOUR_MS),
            epochs,
            active=number == active,
            reason=IneligibleReason.ACTIVE if number == active else None,
        )
        for number, (size_bytes, hours_ago) in enumerate(segments)
    ]


NO_TIME = 1e9

EXAMPLES = {
    "a steady stream, one segment of 3.6 MB an hour": (
        [(3.6 * MB, h) for h in range(6, 0, -1)] + [(3.6 * MB, 0)],
        1000,
    ),
    "the active segment counts": ([(36 * MB, 1), (3.6 * MB, 0)], 1000),
    "of many segments the last ten": ([(900 * MB, 100)] * 30 + [(3.6 * MB, h) for h in range(9, -1, -1)], 1000),
    "a burst a thousand hours ago": ([(900 * MB, 1000), (900 * MB, 1000), (900 * MB, 999.9)], 500),
    "a burst of now counts": ([(900 * MB, 1), (1800 * MB, 0.5), (1800 * MB, 0)], MB),
    "producers whose clocks are two hours ahead": ([(MB, 2), (7.2 * MB, 0), (7.2 * MB, -2)], 1000),
    "segments without a timestamp are no beginning": ([(9 * MB, NO_TIME), (9 * MB, 1), (3.6 * MB, NO_TIME)], 1000),
    "none has a timestamp": ([(9 * MB, NO_TIME), (9 * MB, NO_TIME)], 0),
    "nothing but an active segment": ([(9 * MB, 1)], 0),
    "an empty active segment": ([(9 * MB, 1), (0, NO_TIME)], 0),
    "all of it in this millisecond": ([(9 * MB, 0), (9 * MB, 0)], 0),
    "nothing at all": ([], 0),
}


@pytest.mark.parametrize(("segments", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_bytes_per_second(segments, expected):
    sized = [(int(size_bytes), hours_ago) for size_bytes, hours_ago in segments]
    assert bytes_per_second(log(*sized), NOW_MS) == pytest.approx(expected)
