"""A second panel below the picture of a trace: how many batches worked, and how many the pool had room for."""

from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.plot_trace import HEIGHT, LEFT, RIGHT, WIDTH
from benchmarks.quota_trace import Trace

_PANEL: Final = 110
_TOP: Final = 24
_DOWN: Final = _PANEL - _TOP - 12
_ACROSS: Final = WIDTH - LEFT - RIGHT
_BATCHES_COLOUR: Final = "#2e7d32"
_POOL_COLOUR: Final = "#888"

Count = tuple[float, int]


def with_batches(picture: str, trace: Trace, batches: Sequence[Count], slots: Sequence[Count]) -> str:
    """`picture` is what `plot_trace.plot` made of `trace`; counts are (time, number), each holds until the next."""
    highest = max(count for _, count in [*batches, *slots]) + 0.5

    def stairs(counts: Sequence[Count], style: str) -> str:
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in _stairs(counts, trace, highest))
        return f'<polyline points="{text}" fill="none" stroke-width="1.5" {style}/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + _PANEL}"',
        'font-family="sans-serif" font-size="12">',
        picture.replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ', 1).rstrip(),
        f'<g transform="translate(0 {HEIGHT})">',
        f'<rect width="{WIDTH}" height="{_PANEL}" fill="white"/>',
        f'<text x="{LEFT - 6}" y="{_TOP - 12}" text-anchor="end">batches</text>',
        *_grid(highest),
        stairs(slots, f'stroke="{_POOL_COLOUR}" stroke-dasharray="6 3"'),
        stairs(batches, f'stroke="{_BATCHES_COLOUR}"'),
        *_legend(),
        "</g>",
        "</svg>\n",
    ]
    return "\n".join(parts)


def _stairs(counts: Sequence[Count], trace: Trace, highest: float) -> Iterable[tuple[float, float]]:
    ends = [*(at_s for at_s, _ in counts[1:]), trace.ended_s]
    for (begin_s, count), end_s in zip(counts, ends, strict=True):
        if end_s > trace.begun_s and begin_s < trace.ended_s:
            for at_s in (max(begin_s, trace.begun_s), min(end_s, trace.ended_s)):
                yield LEFT + _ACROSS * (at_s - trace.begun_s) / trace.seconds, _height(count, highest)


def _height(count: float, highest: float) -> float:
    return _TOP + _DOWN * (1 - count / highest)


def _grid(highest: float) -> Iterable[str]:
    for count in range(int(highest) + 1):
        y = _height(count, highest)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e5e5e5"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{count}</text>'


def _legend() -> Iterable[str]:
    entries = ((_POOL_COLOUR, "slots of the pool"), (_BATCHES_COLOUR, "live batches"))
    for number, (colour, words) in enumerate(entries):
        x = WIDTH - RIGHT - 270 + 135 * number
        yield f'<rect x="{x}" y="4" width="14" height="10" fill="{colour}"/><text x="{x + 18}" y="14">{words}</text>'
