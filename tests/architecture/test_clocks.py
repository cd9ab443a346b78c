"""Shares of a quota know no wall clock: neither a host's nor the database's (docs/adr/0017).

Only `fetch_admission` dates reads, by the time that the ledger's store tells it.
"""

import re
from pathlib import Path

import pytest

QUOTA = Path(__file__).parents[2] / "include/tiering/quotas"
OF_SHARES = ("shared_quotas", "shares", "pacing")
WALL_CLOCK = re.compile(r"\bnow_ms\b|\btime\.time|\bdatetime\b|clock_timestamp|func\.now|CURRENT_TIMESTAMP|unixepoch")


@pytest.mark.parametrize("module", OF_SHARES)
def test_a_module_of_the_shares_asks_no_wall_clock(module: str) -> None:
    assert not WALL_CLOCK.findall((QUOTA / f"{module}.py").read_text())
