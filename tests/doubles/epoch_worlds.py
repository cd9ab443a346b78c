"""Random logs with leader changes: the history that holds, and a branch that an unclean election cut off."""

from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from include.tiering.model.leader_epochs import LeaderEpochs

MOST_OFFSET: Final = 40


@dataclass(frozen=True)
class EpochWorld:
    """`main` holds today. `branch` shares its beginning and was truncated; its later epochs are not in `main`."""

    main: LeaderEpochs
    branch: LeaderEpochs


@st.composite
def epoch_worlds(draw: st.DrawFn) -> EpochWorld:
    """Every epoch was led once. Epochs without records occur; where nothing was cut off both histories are equal."""
    shared = _starts(draw, 0, 1, 3)
    divergence = draw(st.integers(shared[-1], MOST_OFFSET))
    cut_off = _starts(draw, divergence, 0, 2)
    later = _starts(draw, divergence, 0, 3)
    if later and cut_off:
        later[0] = divergence
    common = list(enumerate([0, *shared[1:]]))
    dead = list(enumerate(cut_off, len(common)))
    live = list(enumerate(later, len(common) + len(dead)))
    main = LeaderEpochs.of([*common, *live])
    return EpochWorld(main, LeaderEpochs.of([*common, *dead]) if later else main)


def _starts(draw: st.DrawFn, lowest: int, fewest: int, most: int) -> list[int]:
    return sorted(draw(st.lists(st.integers(lowest, MOST_OFFSET), min_size=fewest, max_size=most)))


@st.composite
def cut_views(draw: st.DrawFn, history: LeaderEpochs) -> tuple[LeaderEpochs, int]:
    """What a leader may show of a history at some time, and its log start (inclusive)."""
    log_start = draw(st.integers(0, MOST_OFFSET))
    seen_until = draw(st.integers(log_start + 1, MOST_OFFSET + 1))
    return history.range(-1, seen_until).truncated_from_start(log_start), log_start
