"""What failed and what is lost, by topic; what is over is shown as 0."""

from include.tiering.segments.failed_copies import FAILED_SEGMENTS, LOST_OFFSETS, FailedCopy, publish_failed_copies
from tests.doubles.partial import Partial
from tests.doubles.segments import FINISHED, partition_of, segment_of


class Shown(Partial):
    """Stands for the recorder."""

    def __init__(self) -> None:
        self.values: dict[str, dict[tuple[str, ...], float]] = {}

    def show(self, metric, values) -> None:
        self.values[metric.name] = values


def copy(topic: str, number: int, **rest) -> FailedCopy:
    segment = segment_of(partition_of(topic), number, 100 * number, 100 * number + 99, state=FINISHED)
    return FailedCopy(segment, "Q102", **rest)


def test_failed_lost_and_decided_are_counted_apart():
    shown = Shown()
    copies = [
        copy("orders", 0),
        copy("orders", 1, lost_because="gone"),
        copy("orders", 2, lost_because="gone", given_up=True),
        copy("payments", 3, given_up=True),
        copy("orders", 4, was_left=True),
    ]
    publish_failed_copies(shown, copies, {"orders", "quiet"})
    assert shown.values == {
        FAILED_SEGMENTS.name: {("orders",): 2, ("quiet",): 0},
        LOST_OFFSETS.name: {
            ("orders", "no"): 100,
            ("orders", "yes"): 100,
            ("payments", "yes"): 100,
            ("quiet", "no"): 0,
            ("quiet", "yes"): 0,
        },
    }
