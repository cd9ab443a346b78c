"""A trace against the quota in force, as one SVG.

    python -m benchmarks.plot_trace TRACE.json PLOT.svg [--title WORDS] [--window 0.5]

TRACE.json holds `{"trace": {...}, "quotas": [[time, bytes a second], ...], "events": [[time, words], ...]}`, all times
in seconds of the clock of the trace; the trace is what the sink answers to GET /.arrivals. Drawn are the bytes a second
of every sliding window, placed at its end, and of every 100 ms, as a shade; time counts from the first byte.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.quota_trace import BUCKETS_PER_SECOND, Trace, quota_at

WIDTH: Final = 960
HEIGHT: Final = 360
LEFT: Final = 64
RIGHT: Final = 16
TOP: Final = 48
BOTTOM: Final = 40
_ACROSS: Final = WIDTH - LEFT - RIGHT
_DOWN: Final = HEIGHT - TOP - BOTTOM
_SHADE_STEP_BUCKETS: Final = 10
_LINE_STEP_BUCKETS: Final = 5

Point = tuple[float, float]
Event = tuple[float, str]


def plot(
    trace: Trace,
    quotas: Sequence[tuple[float, int]],
    events: Sequence[Event] = (),
    *,
    title: str = "Bytes a second at the receiver",
    window_s: float = 0.5,
) -> str:
    """The text of an SVG. `quotas` in ascending order of time."""
    shade = trace.counts[: len(trace.counts) // _SHADE_STEP_BUCKETS * _SHADE_STEP_BUCKETS]
    tenths = shade.reshape(-1, _SHADE_STEP_BUCKETS).sum(axis=1) * (BUCKETS_PER_SECOND / _SHADE_STEP_BUCKETS)
    windows = trace.sliding(window_s)[::_LINE_STEP_BUCKETS] / window_s
    highest = 1.1 * max([quota for _, quota in quotas] + [float(tenths.max(initial=0.0))])
    axes = _Axes(trace.begun_s, trace.seconds, highest)
    ends = trace.begun_s + window_s + np.arange(len(windows)) * _LINE_STEP_BUCKETS / BUCKETS_PER_SECOND
    starts = trace.begun_s + np.arange(len(tenths)) * _SHADE_STEP_BUCKETS / BUCKETS_PER_SECOND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
        *axes.grid(),
        axes.line(_stairs(starts, tenths, 0.1), fill="#cfe3f5", closed=True),
        axes.line(_quota_line(trace, quotas), stroke="#c0392b", dashes="6 3"),
        axes.line(zip(ends, windows, strict=True), stroke="#1f5f99"),
        *(axes.mark(at_s, words, row) for row, (at_s, words) in enumerate(events)),
        *_legend(window_s),
        "</svg>\n",
    ]
    return "\n".join(parts)


class _Axes:
    def __init__(self, begun_s: float, seconds: float, highest: float) -> None:
        self._begun_s, self._seconds, self._highest = begun_s, max(seconds, 0.01), highest

    def point(self, at_s: float, rate: float) -> Point:
        across = (at_s - self._begun_s) / self._seconds
        return LEFT + _ACROSS * min(max(across, 0.0), 1.0), TOP + _DOWN * (1 - rate / self._highest)

    def line(
        self,
        points: Iterable[tuple[float, float]],
        *,
        stroke: str = "none",
        fill: str = "none",
        dashes: str = "none",
        closed: bool = False,
    ) -> str:
        placed = [self.point(float(at_s), float(rate)) for at_s, rate in points]
        if closed and placed:
            ground = self.point(0, 0)[1]
            placed = [(placed[0][0], ground), *placed, (placed[-1][0], ground)]
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        style = f'fill="{fill}" stroke="{stroke}" stroke-width="1.5" stroke-dasharray="{dashes}"'
        return f'<polyline points="{text}" {style}/>'

    def grid(self) -> Iterable[str]:
        for rate in _round_steps(self._highest):
            y = self.point(0, rate)[1]
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e5e5e5"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{rate / 1e6:g}</text>'
        for second in _round_steps(self._seconds):
            x = self.point(self._begun_s + second, 0)[0]
            yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{second:g}</text>'
        yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">seconds</text>'
        yield f'<text x="{LEFT - 6}" y="{TOP - 10}" text-anchor="end">MB/s</text>'

    def mark(self, at_s: float, words: str, row: int) -> str:
        x, _ = self.point(at_s, 0)
        y = TOP + 12 + 14 * (row % 3)
        return (
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + _DOWN}" stroke="#888" stroke-dasharray="2 3"/>'
            f'<text x="{x + 4:.1f}" y="{y}" fill="#555">{escape(words)}</text>'
        )


def _stairs(starts: NDArray[np.float64], rates: NDArray[np.float64], step_s: float) -> Iterable[Point]:
    for start, rate in zip(starts, rates, strict=True):
        yield start, rate
        yield start + step_s, rate


def _quota_line(trace: Trace, quotas: Sequence[tuple[float, int]]) -> Iterable[Point]:
    at_s = trace.begun_s
    for change_s, quota in quotas:
        if trace.begun_s < change_s < trace.ended_s:
            yield change_s, quota_at(quotas, np.nextafter(change_s, at_s))
            yield change_s, quota
        elif change_s <= trace.begun_s and quota == quota_at(quotas, at_s):
            yield at_s, quota
    yield trace.ended_s, quota_at(quotas, trace.ended_s)


def _round_steps(highest: float) -> list[float]:
    """4 to 10 round numbers from 0 on."""
    exact = highest / 8
    power = 10.0 ** np.floor(np.log10(exact))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= exact)
    return [round(float(number * step), 6) for number in range(int(highest / step) + 1)]


def _legend(window_s: float) -> Iterable[str]:
    entries = (("#c0392b", "quota in force"), ("#1f5f99", f"rate over {window_s:g} s"), ("#cfe3f5", "rate over 0.1 s"))
    for number, (colour, words) in enumerate(entries):
        x, y = LEFT + 150 * number, HEIGHT - 16
        yield f'<rect x="{x}" y="{y}" width="14" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="{y + 10}">{words}</text>'


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Draw a trace against the quota in force.")
    parser.add_argument("trace", type=Path)
    parser.add_argument("plot", type=Path)
    parser.add_argument("--title", default="Bytes a second at the receiver")
    parser.add_argument("--window", type=float, default=0.5, help="seconds of the sliding window")
    options = parser.parse_args(arguments)
    document = json.loads(options.trace.read_text())
    trace = Trace.from_json(document["trace"])
    quotas = [(float(at_s), int(quota)) for at_s, quota in document["quotas"]]
    events = [(float(at_s), str(words)) for at_s, words in document.get("events", ())]
    options.plot.write_text(plot(trace, quotas, events, title=options.title, window_s=options.window))


if __name__ == "__main__":
    main(sys.argv[1:])
