"""The page and the plot of what producers notice of a copy, from the figures of `bench_producers`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.producers_rounds import Ratio, Round, ratios, summary
from tests.doubles.source_tree import ROOT

PAGE: Final = ROOT / "docs" / "producers.md"
PLOT: Final = ROOT / "docs" / "images" / "producers.svg"
NAMES: Final = {
    "none": "no copy",
    "broker": "Kafka's own copy",
    "platform": "this platform",
    "leaders": "this platform, from leaders",
    "none apart": "no copy, cores apart",
    "platform apart": "this platform, cores apart",
}
GOAL: Final = 1.05
"""How many times the p99 of no copy a copy on cores of its own is to keep within."""
_COLUMNS: Final = (
    "p50, ms",
    "p99, ms (least to most)",
    "broker waits for a core, ms/s",
    "broker reads, MiB/s",
    "copier reads, MiB/s",
    "copied, MiB/s",
    "cores idle",
    "load",
)
_BEGIN: Final = "<!-- figures: make bench-producers -->\n"
_END: Final = "<!-- end of figures -->\n"
_WIDTH, _HEIGHT, _BAR, _LEFT, _GROUND, _TALL = 1060, 300, 36, 60, 240, 180
_COLOURS: Final = {
    "none": "#9aa5b1",
    "broker": "#c0392b",
    "platform": "#1f5f99",
    "leaders": "#2e8b57",
    "none apart": "#d3d9de",
    "platform apart": "#7fb0dc",
}


def write(rounds: Sequence[Round], conditions: Mapping[str, Any]) -> None:
    """Between the page's two marks, and the plot."""
    page = PAGE.read_text()
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    PAGE.write_text(head + _BEGIN + figures(rounds, conditions) + _END + tail)
    PLOT.write_text(plot(summary(rounds)))


def figures(rounds: Sequence[Round], conditions: Mapping[str, Any]) -> str:
    """A table of the cases, and one of their ratios with what they can tell."""
    cases = summary(rounds)
    said = (
        f"Medians of {len(rounds)} rounds of {conditions['seconds']:g} s, both quotas "
        f"{conditions['rate_mib_per_second']} MiB/s; {conditions['cores']} cores, {conditions['cpu']}, "
        f"Linux {conditions['kernel']}."
    )
    lines = [
        "",
        said,
        "",
        f"| | {' | '.join(_COLUMNS)} |",
        f"|---|{'---|' * len(_COLUMNS)}",
        *(_row(NAMES[case], measured) for case, measured in cases.items()),
        "",
        "| p99 of | against | median of the rounds' ratios (95 % interval) | slower? | more than 5 % slower? |",
        "|---|---|---|---|---|",
        *(_ratio_row(pair, found) for pair, found in ratios(rounds).items()),
        "",
    ]
    return "\n".join(lines)


def _row(name: str, figures: Mapping[str, float]) -> str:
    return (
        f"| {name} | {figures['p50_ms']:.2f} "
        f"| {figures['p99_ms']:.2f} ({figures['p99_least_ms']:.2f} to {figures['p99_most_ms']:.2f}) "
        f"| {figures['broker_waited_ms_per_second']:.1f} "
        f"| {figures['broker_read_mib_per_second']:.2f} | {figures['copier_read_mib_per_second']:.2f} "
        f"| {figures['copied_mib_per_second']:.1f} | {figures['idle']:.0%} | {figures['machine_load']:.1f} |"
    )


def _ratio_row(pair: str, found: Ratio) -> str:
    case, _, base = pair.partition(" / ")
    return (
        f"| {NAMES[case]} | {NAMES[base]} | {found.median:.2f} ({found.low:.2f} to {found.high:.2f}) "
        f"| {found.verdict()} | {found.verdict(GOAL)} |"
    )


def plot(cases: Mapping[str, Mapping[str, float]]) -> str:
    """The text of an SVG: p99 with the span of its rounds, and bytes read from storage."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"',
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *_latency_bars(cases),
        *_read_bars(cases),
        *_legend(),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _latency_bars(cases: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    highest = max(figures["p99_most_ms"] for figures in cases.values()) or 1.0
    yield f'<text x="{_LEFT}" y="24" font-size="14">p99 of acknowledgements, ms</text>'
    for place, (case, figures) in enumerate(cases.items()):
        x = _LEFT + place * (_BAR + 24)
        yield from _bar(x, figures["p99_ms"] / highest, f"{figures['p99_ms']:.1f}", _COLOURS[case])
        least, most = (_GROUND - _TALL * figures[name] / highest for name in ("p99_least_ms", "p99_most_ms"))
        middle = x + _BAR / 2
        yield f'<line x1="{middle}" x2="{middle}" y1="{least:.1f}" y2="{most:.1f}" stroke="black"/>'


def _read_bars(cases: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    names = {"broker_read_mib_per_second": "broker", "copier_read_mib_per_second": "copier"}
    highest = max(figures[name] for figures in cases.values() for name in names) or 1.0
    left = _WIDTH / 2 - 20
    yield f'<text x="{left}" y="24" font-size="14">read from storage, MiB/s: broker, copier</text>'
    for place, (case, figures) in enumerate(cases.items()):
        for offset, (name, who) in enumerate(names.items()):
            x = left + place * 90 + offset * (_BAR + 4)
            yield from _bar(x, figures[name] / highest, f"{figures[name]:.1f}", _COLOURS[case])
            yield f'<text x="{x + _BAR / 2}" y="{_GROUND + 14}" text-anchor="middle" fill="#555">{who}</text>'


def _bar(x: float, share: float, words: str, colour: str) -> Iterator[str]:
    top = _GROUND - _TALL * share
    yield f'<rect x="{x}" y="{top:.1f}" width="{_BAR}" height="{_GROUND - top:.1f}" fill="{colour}"/>'
    yield f'<text x="{x + _BAR / 2}" y="{top - 6:.1f}" text-anchor="middle">{words}</text>'


def _legend() -> Iterator[str]:
    for number, (case, name) in enumerate(NAMES.items()):
        x = _LEFT + number * 166
        yield f'<rect x="{x}" y="{_HEIGHT - 26}" width="14" height="10" fill="{_COLOURS[case]}"/>'
        yield f'<text x="{x + 18}" y="{_HEIGHT - 17}">{name}</text>'
