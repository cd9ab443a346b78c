"""Mutants of handovers."""

from typing import Any

from include.tiering.handover import contract, drive, overrides, publish_and_switch, run_checks
from include.tiering.handover.ports import DONE, REMOTE_STORAGE
from include.tiering.handover.rules import HandoverStep
from include.tiering.handover.store import SqlHandoverStore
from tests.simulation.mutants.mutant import Mutant, Patch, nothing

_follows = drive.following  # type: ignore[attr-defined]


def _order(**after: HandoverStep) -> list[Patch]:
    """Steps that come behind others than they should."""

    def instead(step: HandoverStep) -> HandoverStep | None:
        return after.get(step.name, _follows(step))

    return [(drive, "following", instead)]


def _overrides_after_copy() -> list[Patch]:
    return _order(PRECONDITIONS=HandoverStep.COPY, COPY=HandoverStep.OVERRIDES, OVERRIDES=HandoverStep.QUALITY_CHECK)


def _unpublished() -> list[Patch]:
    return _order(RECHECK=HandoverStep.SWITCH)


def _unwatched(*steps: HandoverStep) -> list[Patch]:
    """In these steps nobody waits for brokers to know what is remote."""
    real = publish_and_switch._wait_for_brokers

    def instead(run: Any, step: HandoverStep) -> Any:
        return DONE if step in steps else real(run, step)

    return [(publish_and_switch, "_wait_for_brokers", instead)]


def _never_watched() -> list[Patch]:
    return _unwatched(HandoverStep.WATCH, HandoverStep.RETENTION)


def _watched_once() -> list[Patch]:
    return _unwatched(HandoverStep.RETENTION)


def _unstored() -> list[Patch]:
    def instead(_self: Any, _drive: Any, overrides: Any) -> Any:
        return overrides

    return [(SqlHandoverStore, "save_overrides", instead)]


def _unset() -> list[Patch]:
    """What was held back is set back to the default."""

    def instead(run: Any, keys: Any) -> None:
        found = run.ports.handovers.overrides(run.drive.handover_id)
        left = [one.key for one in found if not one.restored and one.key in keys]
        if left:
            overrides.change_configs(run, run.handover.topic, dict.fromkeys(left))
            run.ports.handovers.overrides_restored(run.drive, left)

    return [(drive, "restore_overrides", instead), (publish_and_switch, "restore_overrides", instead)]


def _first_value_stays() -> list[Patch]:
    """What somebody sets meanwhile is not stored."""
    real = SqlHandoverStore.save_overrides

    def instead(store: SqlHandoverStore, drive: Any, found: Any) -> Any:
        known = {one.key for one in store.overrides(drive.handover_id) if not one.restored}
        return real(store, drive, [one for one in found if one.key not in known])

    return [(SqlHandoverStore, "save_overrides", instead)]


def _kept_by_undo() -> list[Patch]:
    return [(drive, "restore_overrides", nothing)]


def _switched_without_overrides() -> list[Patch]:
    """Nobody looks at the retention overrides once they are set, and the switch is a request of its own."""
    real = run_checks.results_of  # type: ignore[attr-defined]

    def instead(checks: Any, *args: Any) -> Any:
        return real([one for one in checks if not one.name.endswith("-is-guarded")], *args)

    def alone(run: Any, topic: str, changes: Any) -> None:
        overrides.change_configs(run, topic, {REMOTE_STORAGE: changes[REMOTE_STORAGE]})

    return [
        (publish_and_switch, "_is_limited", lambda *_: False),
        (publish_and_switch, "change_configs", alone),
        (run_checks, "results_of", instead),
    ]


def _unnoticed() -> list[Patch]:
    return [(drive, "notice_switch", nothing), (publish_and_switch, "notice_switch", nothing)]


def _asleep() -> list[Patch]:
    return [(contract, "_forgotten", nothing)]


HANDING_OVER = (
    Mutant("guards-late", "a handover overrides retention before it copies", "it copies first", _overrides_after_copy),
    Mutant("guards-unstored", "old values are stored before retention is overridden", "the rule is ignored", _unstored),
    Mutant("guards-unset", "restored values are the old values", "the default is restored", _unset),
    Mutant(
        "first-value-stays",
        "restored values are the most recent ones",
        "the first stored value is restored",
        _first_value_stays,
    ),
    Mutant("undo-keeps-guards", "an undo restores overridden configs", "the rule is ignored", _kept_by_undo),
    Mutant("switch-unpublished", "only complete partitions are switched on", "nothing need be published", _unpublished),
    Mutant(
        "switch-unguarded",
        "the switch is made under retention overrides",
        "they are not checked",
        _switched_without_overrides,
    ),
    Mutant(
        "retention-early",
        "retention is restored when the brokers know what is remote",
        "it is restored at once",
        _never_watched,
    ),
    Mutant(
        "old-leaders-knew", "the current leaders know what is remote", "earlier leaders count as well", _watched_once
    ),
    Mutant("by-hand-unnoticed", "a switch by hand is followed", "it is not noticed", _unnoticed),
    Mutant("watchdog-asleep", "retention overrides are never forgotten", "the watch reports nothing", _asleep),
)
