"""A process that verifies a planned run in groups of two and, if told to, dies by SIGKILL at a point of the second.

    verify_worker RUN_ID [--kill-at measured|results|recorded|all-recorded|noted]

The first start copies what there is and plans the run; later ones go on with it. The evaluator is the plain one, which
nobody waits for. Settings come from TIERING_... variables.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from include.tiering.app import App, adapters, open_app
from include.tiering.model.segments import Depth
from include.tiering.segments import sql_verdicts
from include.tiering.settings import load_settings
from include.tiering.verification import verify_planned
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.plan import VerificationSample
from include.tiering.verification.suites import Suite
from include.tiering.verification.verify_planned import MeasureAll, ToMeasure
from include.tiering.verification.verify_segments import LockedSegment
from tests.doubles.dying import die, worker_arguments
from tests.doubles.plain_evaluator import PlainEvaluator

POINTS: Final = ("measured", "results", "recorded", "all-recorded", "noted")
GROUP: Final = 2


def plain_evaluator(suites: Sequence[Suite], results_dir: Path | None) -> PlainEvaluator:
    return PlainEvaluator([rule for suite in suites for rule in suite.rules])


def dies_after(function: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """The process dies when this has returned so many times."""
    left = calls

    def call(*arguments: Any, **rest: Any) -> Any:
        nonlocal left
        answer = function(*arguments, **rest)
        left -= 1
        if not left:
            die()
        return answer

    return call


class DiesAfter:
    """Passes everything on; the process dies after so many calls of one method."""

    def __init__(self, inner: Any, method: str, calls: int) -> None:
        self._inner = inner
        self._method = method
        self._dying = dies_after(getattr(inner, method), calls)

    def __getattr__(self, name: str) -> Any:
        return self._dying if name == self._method else getattr(self._inner, name)


def dies_after_measuring(measure_all: MeasureAll) -> MeasureAll:
    groups = 0

    def measured(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure | LockedSegment]:
        nonlocal groups
        groups += 1
        measures = list(measure_all(wanted))
        if groups == 2:
            die()
        return measures

    return measured


def arm(app: App, point: str | None) -> Callable[[MeasureAll], MeasureAll]:
    """Set the point of the second group at which it dies."""
    if point == "results":
        sql_verdicts.store_results = dies_after(sql_verdicts.store_results, GROUP + 1)
    elif point == "recorded":
        app.adapters.stores.metadata = DiesAfter(app.adapters.stores.metadata, "record_verification", GROUP + 1)
    elif point == "all-recorded":
        app.adapters.stores.metadata = DiesAfter(app.adapters.stores.metadata, "record_verification", 2 * GROUP)
    elif point == "noted":
        app.adapters.stores.verifications = DiesAfter(app.adapters.stores.verifications, "record", 2)
    return dies_after_measuring if point == "measured" else lambda measure_all: measure_all


def prepare(app: App, run_id: str) -> None:
    app.set_up.migrate()
    if app.adapters.stores.metadata.partitions():
        return
    app.copying.plan("copy")
    app.copying.run_batch("copy", "copy/0")
    app.verification.plan(run_id, VerificationSample(due=True), depth=Depth.DEEP)


def main() -> None:
    arguments = worker_arguments()
    assert arguments.kill_at in (None, *POINTS)
    vars(adapters)["great_expectations"] = plain_evaluator
    vars(verify_planned)["GROUP_SEGMENTS"] = GROUP
    with open_app(load_settings()) as app:
        prepare(app, arguments.run_id)
    with open_app(load_settings()) as app:
        dying = arm(app, arguments.kill_at)
        app.verification.run_planned(arguments.run_id, measure_all=dying(app.verification.measure_all))
