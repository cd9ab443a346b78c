"""Whatever the platform says to a person has its entry in the runbook, in the same words."""

from typing import Final

from include.tiering.app import App
from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import Guard
from include.tiering.copying.plan import HeldBack
from include.tiering.expiration.plan import Waits
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.operations.readiness import NotReady
from include.tiering.settings import TieringSettings
from tests.doubles.source_tree import ROOT

_RUNBOOK: Final = (ROOT / "docs" / "runbook.md").read_text()


def test_every_reason_why_a_segment_is_not_eligible_has_an_entry() -> None:
    assert [reason.message for reason in IneligibleReason if reason.message not in _RUNBOOK] == []


def test_every_reason_why_a_partition_is_held_back_has_an_entry() -> None:
    assert [reason.message for reason in HeldBack if reason.message not in _RUNBOOK] == []


def test_every_reason_why_a_partition_is_not_ready_has_an_entry() -> None:
    assert [reason.message for reason in NotReady if f"| {reason.message} |" not in _RUNBOOK] == []


def test_every_reason_why_a_partition_waits_to_expire_has_an_entry() -> None:
    assert [reason.message for reason in Waits if f"| {reason.message} |" not in _RUNBOOK] == []


def test_every_kind_of_finding_and_every_guard_of_an_audit_has_an_entry() -> None:
    assert [kind.value for kind in FindingKind if kind.value not in _RUNBOOK] == []
    assert [guard.value for guard in Guard if f"| {guard.value} |" not in _RUNBOOK] == []


def test_every_readiness_check_has_an_entry() -> None:
    names = list(App(TieringSettings()).deployment_checks.probes("a pool"))
    assert names
    assert [name for name in names if f"| {name} |" not in _RUNBOOK] == []
