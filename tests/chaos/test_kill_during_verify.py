"""kill -9 at every step of a planned verification: what was stored stays, and the next process does the rest.

The crash table of `verify_planned` is the specification.
"""

import pytest

from include.tiering.app import open_app
from include.tiering.model.segments import Verdict
from include.tiering.settings import load_settings
from include.tiering.verification.plan import VerificationOutcome
from tests.doubles.copy_process import kill_worker, run_worker
from tests.doubles.verify_worker import GROUP

pytestmark = pytest.mark.chaos

WORKER = "verify_worker"
# Verdicts, and outcomes in the plan, of the first group and of what the second came to.
LEFT = {
    "measured": (GROUP, GROUP),
    "results": (GROUP, GROUP),
    "recorded": (GROUP + 1, GROUP),
    "all-recorded": (2 * GROUP, GROUP),
    "noted": (2 * GROUP, 2 * GROUP),
}


@pytest.fixture
def storage(tmp_path) -> dict[str, str]:
    """Where the objects are makes no difference to how they are verified."""
    (tmp_path / "remote").mkdir()
    return {"TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path}/remote"}


def passed() -> tuple[int, int, int]:
    """Segments with the verdict, with the outcome in the plan, and planned ones in all."""
    with open_app(load_settings()) as app:
        verdicts = {total.verdict: total.segments for total in app.adapters.stores.metadata.verdict_totals()}
        outcomes = {total.outcome: total.segments for total in app.adapters.stores.verifications.totals("one")}
    assert verdicts[Verdict.FAILED] == outcomes[VerificationOutcome.FAILED] == 0
    return verdicts[Verdict.PASSED], outcomes[VerificationOutcome.PASSED], sum(outcomes.values())


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("point", LEFT)
def test_at_a_point(point, monkeypatch):
    monkeypatch.setenv("TIERING_TOPICS__INCLUDE", "normal,prealloc")
    kill_worker("one", "--kill-at", point, worker=WORKER)
    *left, planned = passed()
    assert tuple(left) == LEFT[point]
    assert planned > 2 * GROUP
    assert run_worker("one", worker=WORKER) == 0
    assert passed() == (planned, planned, planned)
