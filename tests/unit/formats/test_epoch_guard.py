import pytest

from include.tiering.errors import FormatError
from include.tiering.formats.log_batches import EpochGuard
from include.tiering.model.leader_epochs import LeaderEpochs

HISTORY = LeaderEpochs.of([(2, 100), (3, 150), (4, 150), (7, 180)])


def _follow(history: LeaderEpochs | None, *batches: tuple[int, int, int]) -> LeaderEpochs:
    """Feeds (epoch, first offset, last offset) as the check pass does: only what the current epoch does not cover."""
    guard = EpochGuard(history)
    for number, (epoch, first, last) in enumerate(batches):
        if epoch != guard.epoch or last >= guard.end_offset:
            guard.enter(epoch, first, last, 1000 + number)
    return guard.seen


def test_batches_that_the_history_knows() -> None:
    seen = _follow(HISTORY, (2, 100, 120), (2, 121, 149), (4, 150, 170), (4, 175, 179), (7, 180, 10_000))
    assert seen == LeaderEpochs.of([(2, 100), (4, 150), (7, 180)])


def test_a_segment_in_the_middle_of_an_epoch() -> None:
    assert _follow(HISTORY, (2, 130, 140)) == LeaderEpochs.of([(2, 130)])


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([(3, 100, 110)], "leader epoch 3 at offsets 100..110, the history has 2 from 100"),
        ([(2, 140, 149), (2, 150, 151)], "leader epoch 2 at offsets 150..151, the history has 4 from 150"),
        ([(2, 140, 155)], "leader epoch 2 at offsets 140..155, the history has 4 from 150"),
        ([(4, 149, 155)], "leader epoch 4 at offsets 149..155, the history has 4 from 150"),
        ([(3, 150, 151)], "leader epoch 3 at offsets 150..151, the history has 4 from 150"),
        ([(8, 200, 200)], "leader epoch 8 at offsets 200..200, the history has 7 from 180"),
        ([(-1, 200, 200)], "leader epoch -1 at offsets 200..200, the history has 7 from 180"),
        ([(7, 180, 190), (4, 191, 192)], "leader epoch 4 at offset 191 follows 7"),
        ([(3, 50, 60)], "leader epoch 3 at offset 50, the history has 2 from 100"),
    ],
)
def test_batches_that_the_history_does_not_know(batches: list[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        _follow(HISTORY, *batches)
    assert caught.value.message == message
    assert caught.value.position == 1000 + len(batches) - 1


def test_a_batch_belongs_to_one_epoch() -> None:
    with pytest.raises(FormatError, match="the history has 3 from 150"):
        _follow(LeaderEpochs.of([(2, 100), (3, 150)]), (3, 149, 155))


def test_a_history_cut_inside_the_segment_bounds_what_lies_before_it() -> None:
    seen = _follow(HISTORY, (0, 10, 20), (2, 30, 40), (2, 95, 105), (2, 106, 149), (4, 150, 150))
    assert seen == LeaderEpochs.of([(0, 10), (2, 30), (4, 150)])


@pytest.mark.parametrize("history", [None, LeaderEpochs()])
def test_without_a_history_epochs_must_only_not_fall(history: LeaderEpochs | None) -> None:
    assert _follow(history, (-1, 0, 4), (3, 5, 9), (3, 10, 12), (9, 13, 13)) == LeaderEpochs.of([(3, 5), (9, 13)])
    with pytest.raises(FormatError, match="follows 3"):
        _follow(history, (3, 5, 9), (2, 10, 10))


def test_an_epoch_below_none_is_refused() -> None:
    with pytest.raises(FormatError, match="leader epoch -2"):
        _follow(None, (-2, 0, 0))
