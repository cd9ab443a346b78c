"""The rate of delete requests: how it is set, what a request weighs, and that it goes through the same limiter."""

import pytest

from include.tiering.configs.config_catalogue import DELETE_LIMIT, DELETE_RATE, config_on
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, ConfigSnapshot, EntityType
from include.tiering.configs.rules import quotas_in_force
from include.tiering.errors import SendingStoppedError, SettingError
from include.tiering.quotas.contract import (
    UNITS_PER_REQUEST,
    QuotaKind,
    QuotaLevel,
    RequestsAsBytes,
    Scope,
    delete_scopes,
)
from include.tiering.quotas.shares import Pacer
from tests.doubles.quotas import NoQuotas
from tests.doubles.storage_segments import CountingLimiter

TOTAL = Scope(QuotaKind.DELETE, QuotaLevel.TOTAL)


def in_force(value: str) -> int | None:
    return quotas_in_force(ConfigSnapshot(1, {ALL_BROKERS: {DELETE_RATE: value}})).of(TOTAL)


def test_requests_are_paced_as_units() -> None:
    assert in_force("5") == 5 * UNITS_PER_REQUEST
    assert delete_scopes() == (TOTAL,)


def test_zero_is_unlimited() -> None:
    assert in_force("0") is None


@pytest.mark.parametrize("text", ["-1", "1000001", "five"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="0 \\(unlimited\\) to 1000000"):
        DELETE_LIMIT.canonical(text)


def test_it_belongs_to_the_default_of_the_brokers_alone() -> None:
    assert config_on(ALL_BROKERS, DELETE_RATE) is DELETE_LIMIT
    with pytest.raises(SettingError, match="belongs to brokers: default"):
        config_on(ConfigEntity(EntityType.BROKERS, "1"), DELETE_RATE)


def test_a_request_takes_all_of_its_units() -> None:
    units = CountingLimiter()
    RequestsAsBytes(units).take()
    assert units.total_bytes == UNITS_PER_REQUEST


def test_a_slow_rate_is_as_smooth_as_a_fast_one() -> None:
    """Two requests a second: the second one may leave half a second after the first, in slices of 10 ms."""
    pacer = Pacer(2.0 * UNITS_PER_REQUEST, free_at=0.0)
    now = 0.0
    for _ in range(2):
        left = UNITS_PER_REQUEST
        while left:
            now += pacer.wait_seconds(now)
            taken = min(left, pacer.slice_bytes())
            pacer.charge(taken, now)
            left -= taken
    assert now == pytest.approx(1.0, abs=0.02)


def test_without_quotas_only_the_gate_counts() -> None:
    def closed() -> None:
        raise SendingStoppedError("paused")

    NoQuotas().delete("orders", go_on=lambda: None).take()
    with pytest.raises(SendingStoppedError):
        NoQuotas().delete("orders", go_on=closed).take()
