"""Rounds of the benchmark of producers: kept over several calls, and what their ratios decide."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import producers_page
from benchmarks.producers_rounds import (
    ALONE,
    ALONE_APART,
    BROKER,
    CASES,
    LEADERS,
    PLATFORM,
    PLATFORM_APART,
    Measured,
    Round,
    RoundsFile,
    ratio,
    ratios,
    summary,
)
from include.tiering.units import MIB

CONDITIONS = {"rate_mib_per_second": 10, "seconds": 20.0, "cores": 2, "cpu": "a CPU", "kernel": "6.18", "source": "a1"}


def measured(case: str, p99_ms: float) -> Measured:
    return Measured(case, {"p50_ms": 1.0, "p99_ms": p99_ms}, 0, 20 * MIB, 40 * MIB, 4.0, 0.5, 0.008, 1.5)


def round_of(p99s: Mapping[str, float]) -> Round:
    return {case: measured(case, p99s.get(case, 3.0)) for case in CASES}


def rounds_with(*p99s: float) -> Sequence[Round]:
    """Kafka's own copy takes 3 ms in each, the platform's so much."""
    return [round_of({PLATFORM: p99_ms}) for p99_ms in p99s]


def test_a_second_call_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    first = RoundsFile(tmp_path / "rounds", CONDITIONS)
    first.append(round_of({PLATFORM: 4.0}))
    second = RoundsFile(tmp_path / "rounds", CONDITIONS)
    assert second.rounds == first.rounds
    second.append(round_of({PLATFORM: 5.0}))
    assert [each[PLATFORM].load["p99_ms"] for each in RoundsFile(tmp_path / "rounds", CONDITIONS).rounds] == [4.0, 5.0]


def test_rounds_of_another_version_are_not_added_up(tmp_path: Path) -> None:
    RoundsFile(tmp_path / "rounds", CONDITIONS).append(round_of({}))
    with pytest.raises(ValueError, match="name another file"):
        RoundsFile(tmp_path / "rounds", {**CONDITIONS, "source": "b2"})


@pytest.mark.parametrize(
    ("p99s", "slower", "much_slower"),
    [
        ((3.3, 3.33, 3.36, 3.27, 3.3, 3.3), "yes", "yes"),
        ((3.06, 3.09, 3.06, 3.03, 3.06, 3.06), "yes", "no"),
        ((2.7, 2.73, 2.7, 2.67, 2.76, 2.7), "no", "no"),
        ((2.4, 3.9, 3.0, 2.7, 3.6, 3.0), "undecided", "undecided"),
        ((3.3, 3.33, 3.36, 3.27, 3.3), "undecided", "undecided"),
    ],
)
def test_what_a_ratio_decides(p99s: Sequence[float], slower: str, much_slower: str) -> None:
    found = ratio(rounds_with(*p99s), PLATFORM, BROKER)
    assert found.low <= found.median <= found.high
    assert (found.verdict(), found.verdict(1.05)) == (slower, much_slower)


def test_a_ratio_is_taken_within_each_round() -> None:
    """What makes a whole round slow leaves the ratio as it is."""
    rounds = [round_of({BROKER: p99_ms, PLATFORM: 1.1 * p99_ms}) for p99_ms in (3.0, 12.0, 4.0, 30.0)]
    found = ratio(rounds, PLATFORM, BROKER)
    assert (found.low, found.median, found.high) == (1.1, 1.1, 1.1)


def test_the_summary_is_of_medians_a_second() -> None:
    alone = summary(rounds_with(2.0, 9.0, 4.0))[PLATFORM]
    assert (alone["p99_ms"], alone["p99_least_ms"], alone["p99_most_ms"]) == (4.0, 2.0, 9.0)
    assert (alone["copied_mib_per_second"], alone["copier_read_mib_per_second"]) == (10.0, 5.0)
    assert alone["broker_waited_ms_per_second"] == 2.0


def test_the_pairs_that_the_page_compares() -> None:
    p99s = {PLATFORM: 4.0, LEADERS: 3.0, BROKER: 2.0, ALONE: 1.0, ALONE_APART: 2.0, PLATFORM_APART: 2.1}
    found = ratios([round_of(p99s)])
    assert {pair: each.median for pair, each in found.items()} == {
        "platform / broker": 2.0,
        "platform / none": 4.0,
        "leaders / broker": 1.5,
        "leaders / platform": 0.75,
        "leaders / none": 3.0,
        "broker / none": 2.0,
        "platform apart / none apart": 1.05,
    }


def test_the_page_and_its_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, picture = tmp_path / "producers.md", tmp_path / "producers.svg"
    page.write_text("before\n<!-- figures: make bench-producers -->\nold\n<!-- end of figures -->\nafter\n")
    monkeypatch.setattr(producers_page, "PAGE", page)
    monkeypatch.setattr(producers_page, "PLOT", picture)
    producers_page.write(rounds_with(3.3, 3.3, 3.33, 3.33, 3.36, 3.36), CONDITIONS)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| this platform | Kafka's own copy | 1.11 (1.10 to 1.12) | yes | yes |" in text
    assert "| this platform, cores apart | no copy, cores apart | 1.00 (1.00 to 1.00) | undecided | no |" in text
    ET.parse(picture)  # noqa: S314
