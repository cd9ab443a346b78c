"""Dynamic configs in memory, and a quota ledger whose workers do as they are told."""

from collections.abc import Callable, Mapping, Sequence

from include.tiering.configs.config_store import (
    ConfigAlteration,
    ConfigChange,
    ConfigCheck,
    ConfigEntity,
    ConfigSnapshot,
    accept_all,
)
from include.tiering.quotas.contract import QuotasInForce, QuotaWorker
from tests.doubles.manual_clock import ManualClock


class MemoryConfigStore:
    """`ConfigStore` for one thread. Versions count changes."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or ManualClock().now_ms
        self._values: dict[ConfigEntity, dict[str, str]] = {}
        self._history: list[ConfigChange] = []

    def snapshot(self) -> ConfigSnapshot:
        return ConfigSnapshot(len(self._history), {one: dict(values) for one, values in self._values.items()})

    def of_entity(self, entity: ConfigEntity) -> Mapping[str, str]:
        return dict(self._values.get(entity, {}))

    def alter(
        self,
        entity: ConfigEntity,
        changes: Mapping[str, str | None],
        *,
        author: str,
        check: ConfigCheck = accept_all,
    ) -> ConfigAlteration:
        known = self.of_entity(entity)
        own = {name: value for name, value in {**known, **changes}.items() if value is not None}
        after = {one: values for one, values in {**self._values, entity: own}.items() if values}
        check(self._values, after)
        self._values = after
        made = tuple(
            ConfigChange(entity, name, known.get(name), value, author, self._now_ms())
            for name, value in changes.items()
            if known.get(name) != value
        )
        self._history += made
        return ConfigAlteration(made, self.snapshot())

    def history(self, entity: ConfigEntity | None = None) -> Sequence[ConfigChange]:
        return [change for change in self._history if entity in (None, change.entity)]


class ScriptedLedger:
    """`QuotaLedger` that keeps the newest announcement. A worker takes it after so many looks; None: never."""

    def __init__(self, **reads_until_taken: int | None) -> None:
        self.announced: list[QuotasInForce] = []
        self.reads_until_taken = reads_until_taken
        self.looks = 0

    def announce(self, quotas: QuotasInForce) -> None:
        self.announced.append(quotas)
        self.looks = 0

    def in_force(self) -> QuotasInForce:
        return max(self.announced, key=lambda quotas: quotas.version, default=QuotasInForce(0, {}))

    def workers(self) -> tuple[QuotaWorker, ...]:
        self.looks += 1
        return tuple(
            QuotaWorker(name, self.in_force().version if needed is not None and self.looks > needed else 0)
            for name, needed in self.reads_until_taken.items()
        )
