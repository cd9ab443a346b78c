"""The plot is well-formed and puts rates, quotas and events where they belong."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.plot_trace import LEFT, TOP, WIDTH, main, plot
from benchmarks.quota_trace import Trace

SVG = "{http://www.w3.org/2000/svg}"
TRACE = Trace.of([*[10_000] * 300, *[1_000] * 300], begun_s=50.0)
QUOTAS = [(49.9, 1_000_000), (53.0, 100_000)]


def lines(text: str) -> list[list[tuple[float, float]]]:
    """Points of the shade, the quota and the rate, in this order."""
    found = ET.fromstring(text).iter(f"{SVG}polyline")  # noqa: S314
    return [[point_of(point) for point in line.attrib["points"].split()] for line in found]


def point_of(text: str) -> tuple[float, float]:
    x, y = map(float, text.split(","))
    return x, y


def test_quota_and_rate_lie_on_each_other() -> None:
    _, quota, rate = lines(plot(TRACE, QUOTAS))
    assert quota[0][0] == pytest.approx(LEFT)
    assert [y for _, y in quota] == pytest.approx([quota[0][1], quota[0][1], quota[2][1], quota[2][1]])
    assert quota[0][1] < quota[2][1], "less is lower"
    assert rate[0][1] == pytest.approx(quota[0][1], abs=0.2)
    assert rate[-1][1] == pytest.approx(quota[-1][1], abs=0.2)
    assert rate[-1][0] <= WIDTH
    assert min(y for _, y in rate) >= TOP


def test_words_are_escaped() -> None:
    text = plot(TRACE, QUOTAS, [(53.0, "a < b")], title="x & y")
    texts = [element.text for element in ET.fromstring(text).iter(f"{SVG}text")]  # noqa: S314
    assert {"a < b", "x & y", "quota in force"} <= set(texts)


def test_a_file_is_drawn(tmp_path: Path) -> None:
    document = {"trace": TRACE.to_json(), "quotas": QUOTAS, "events": [[53.0, "changed"]]}
    (tmp_path / "trace.json").write_text(json.dumps(document))
    main([str(tmp_path / "trace.json"), str(tmp_path / "plot.svg"), "--title", "Live"])
    assert "changed" in (tmp_path / "plot.svg").read_text()
