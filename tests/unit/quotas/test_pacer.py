"""Bytes of one rate inside the second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.quotas.shares import CATCH_UP_SECONDS, SLICE_SECONDS, Pacer
from include.tiering.units import MIB

RATE = 1_000_000.0


def sent_by(pacer: Pacer, pauses: list[float], until: float) -> list[tuple[float, int]]:
    """A sender that takes every slice as soon as it may, apart from its pauses."""
    now, sent = pacer.free_at, []
    waits = iter(pauses)
    while now < until:
        now += pacer.wait_seconds(now) + next(waits, 0.0)
        size_bytes = pacer.slice_bytes()
        pacer.charge(size_bytes, now)
        sent.append((now, size_bytes))
    return sent


def test_a_steady_sender_gets_the_rate() -> None:
    sent = sent_by(Pacer(RATE, 0.0), [], until=10.0)
    assert sum(size_bytes for _, size_bytes in sent) == pytest.approx(10 * RATE, rel=0.002)


@given(
    rate=st.sampled_from([1.0, 333.0, 125e3, 1e6, 2e8]),
    pauses=st.lists(st.floats(0, 0.3), max_size=200),
    start=st.floats(0, 2),
)
def test_no_second_carries_more_than_the_rate_and_the_catch_up(rate: float, pauses: list[float], start: float) -> None:
    sent = sent_by(Pacer(rate, 0.0), pauses, until=max(3.0, 3 / rate))
    in_window = sum(size_bytes for at, size_bytes in sent if start <= at < start + 1)
    one_slice = max(1.0, rate * SLICE_SECONDS)
    assert in_window <= rate * (1 + CATCH_UP_SECONDS) + one_slice + 1e-6 * rate


def test_a_long_silence_is_lost() -> None:
    pacer = Pacer(RATE, 0.0)
    pacer.charge(pacer.slice_bytes(), 100.0)
    pacer.charge(pacer.slice_bytes(), 100.0)
    pacer.charge(pacer.slice_bytes(), 100.0)
    assert pacer.wait_seconds(100.0) == pytest.approx(3 * SLICE_SECONDS - CATCH_UP_SECONDS)


def test_a_slice_is_never_empty() -> None:
    assert Pacer(0.5, 0.0).slice_bytes() == 1
    assert Pacer(100.0 * MIB, 0.0).slice_bytes() == MIB


def test_nothing_is_granted_at_rate_zero_until_the_rate_rises() -> None:
    pacer = Pacer(0.0, 0.0)
    assert pacer.wait_seconds(1e9) == float("inf")
    pacer.change(RATE, 1e9)
    assert pacer.wait_seconds(1e9) == 0.0


@pytest.mark.parametrize("new_rate", [RATE / 1000, RATE * 1000])
def test_a_change_is_followed_within_a_slice(new_rate: float) -> None:
    pacer = Pacer(RATE / 1000, 0.0)
    pacer.charge(1_000_000, 0.0)
    pacer.change(new_rate, 1.0)
    assert pacer.wait_seconds(1.0) <= SLICE_SECONDS + 1e-9
