"""The limits of the counters: what the tests allow today, in the table `tool.structure.limits` of pyproject.toml."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from local.structure.counters import COUNTERS, TRACED


def limits_of(root: Path) -> dict[str, float]:
    """Return the limits that a checkout states, by key of the counter; empty if the checkout has no such table."""
    file = root / "pyproject.toml"
    tables = tomllib.loads(file.read_text()) if file.exists() else {}
    return dict(tables.get("tool", {}).get("structure", {}).get("limits", {}))


def beyond_limits(values: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """Return one sentence for each counter of `values` that is on the wrong side of its limit."""
    return [
        f"{counter.title}: {values[counter.key]}, allowed {'at least' if counter.at_least else 'at most'}"
        f" {limits[counter.key]}"
        for counter in (*COUNTERS, *TRACED)
        if counter.key in values
        and counter.key in limits
        and not counter.keeps(values[counter.key], limits[counter.key])
    ]
