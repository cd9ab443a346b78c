"""Change dynamic configs while jobs run, and wait until the jobs have taken the change.

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| check | nothing | |
| store values and history, one transaction | stored, not in force | the same change again, or any other |
| announce | in force: workers take it by themselves | |
| claim the store | a backup of the database from before the change is not refused | the same again, or the next plan |
| wait | as before: waiting only looks | |

Every change announces all quotas, with the version of the values that they come from; the ledger keeps the newest. So
changes may cross, be repeated, or be cut off, and what is in force is never older than what was announced.

A database from before a change would delete by what was in force then: so a change claims the store as a plan does,
behind what it does itself. It counts without that too: a store that is away keeps nobody from lengthening a retention.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.configs.config_rules import check_rules, checked_changes, quotas_in_force
from include.tiering.configs.config_store import (
    ConfigChange,
    ConfigCheck,
    ConfigEntity,
    ConfigStore,
    ConfigValues,
    accept_all,
)
from include.tiering.quotas.contract import QuotaLedger, QuotaWorker

WAIT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """What was changed (nothing if all was so before), and which running workers have taken it.

    `not_taken_by` also holds workers that died a moment ago: they are counted until others have seen them silent.
    `notes` say what follows, in words, where the change was not one that workers take: sizes of pools. `not_claimed`
    says why the store could not be claimed behind the change.
    """

    entity: ConfigEntity
    version: int
    changes: tuple[ConfigChange, ...]
    taken_by: tuple[QuotaWorker, ...]
    not_taken_by: tuple[QuotaWorker, ...]
    notes: tuple[str, ...] = ()
    not_claimed: str | None = None


def alter_configs(
    entity: ConfigEntity,
    changes: Mapping[str, str | None],
    *,
    store: ConfigStore,
    ledger: QuotaLedger,
    clock: Clock,
    author: str,
    check: ConfigCheck = accept_all,
    wait_seconds: float = WAIT_SECONDS,
    claim: Callable[[], str | None] = lambda: None,
) -> AlteredConfigs:
    """Set, or with None remove, all of `changes` or nothing. Repeating is harmless, and announces again.

    `check` is asked beside the rules that always hold; what it raises comes out of here. `claim` claims the store and
    returns why that could not be done, None if it was.

    Raises:
        SettingError: a name, value or place that is wrong by itself.
        ConfigRefusedError: the change breaks a rule together with the other values.
        MetadataUnavailableError: after a stored change too; repeat it.
    """
    checked = checked_changes(entity, changes, stored=store.of_entity(entity))

    def check_all(before: ConfigValues, after: ConfigValues) -> None:
        check_rules(after)
        check(before, after)

    altered = store.alter(entity, checked, author=author, check=check_all)
    ledger.announce(quotas_in_force(altered.snapshot))
    version, not_claimed = altered.snapshot.version, claim()
    taken_by, not_taken_by = _wait_for(version, ledger, clock, wait_seconds)
    return AlteredConfigs(entity, version, altered.changes, taken_by, not_taken_by, not_claimed=not_claimed)


def _wait_for(
    version: int, ledger: QuotaLedger, clock: Clock, wait_seconds: float
) -> tuple[tuple[QuotaWorker, ...], tuple[QuotaWorker, ...]]:
    """Workers that have taken `version`, and those that have not when the time is over."""
    deadline = clock.monotonic() + wait_seconds
    while True:
        workers = ledger.workers()
        behind = tuple(worker for worker in workers if worker.version < version)
        if not behind or clock.monotonic() >= deadline:
            return tuple(worker for worker in workers if worker.version >= version), behind
        clock.sleep(POLL_SECONDS)
