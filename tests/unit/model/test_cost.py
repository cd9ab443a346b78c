"""Exact amounts, and no amount for what has no price."""

from decimal import Decimal

from include.tiering.model.sizes import CostEstimate, PriceTable, estimate_cost
from include.tiering.units import GIB


def test_each_price_gives_its_amount() -> None:
    prices = PriceTable("EUR", Decimal("0.023"), Decimal("0.005"), Decimal("0.0004"), Decimal("0.1"))
    assert estimate_cost(10 * GIB, 334_000, prices) == CostEstimate(
        "EUR", Decimal("0.23"), writing=Decimal("5.01"), reading=Decimal("0.4008"), deleting=Decimal("0.1004")
    )


def test_without_a_price_there_is_no_amount_and_without_any_no_estimate() -> None:
    assert estimate_cost(GIB, 1, PriceTable("EUR")) is None
    storage_only = estimate_cost(GIB, 1, PriceTable("EUR", gib_month=Decimal(1)))
    assert storage_only == CostEstimate("EUR", Decimal(1), None, None, None)
