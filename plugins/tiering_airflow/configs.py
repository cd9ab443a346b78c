"""The task of `tiering_configs`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from airflow.sdk import BaseOperator

from include.tiering.configs.config_store import ConfigChange, ConfigEntity, ConfigValues
from include.tiering.configs.report import alteration_words
from include.tiering.configs.rules import checked_entity, loosened_limits
from include.tiering.configs.service import AlteredConfigs
from include.tiering.errors import ConfigNotTakenError, LimitRefusedError, SettingError
from include.tiering.settings import TieringSettings
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.shared import author

if TYPE_CHECKING:
    from airflow.sdk import Context

_COUNTS_FOR: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """What the form of `tiering_configs` asks for; a value of None removes."""

    entity: ConfigEntity
    name: str
    value: str | None

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """Raises SettingError for fields that contradict each other, and for an illegal name of an entity."""
        named, value = params["entity_name"] or None, params["value"] or None
        if (named is None) is not params["entity_default"]:
            raise SettingError("say either Default or the name of one entity")
        if (value is None) is not params["delete"]:
            raise SettingError("say either Remove or a value")
        return cls(checked_entity(params["entity_type"], named), params["name"], value)


class AlterConfigOperator(BaseOperator):
    """Changes one dynamic config as its form says, and fails with the numbers if a rule refuses the change."""

    def execute(self, context: "Context") -> dict[str, int]:
        """Raises SettingError, ConfigRefusedError, LimitRefusedError, ConfigNotTakenError, MetadataUnavailableError."""
        request = ConfigRequest.from_params(context["params"])
        with TieringHook().open() as app:
            app.operations.require_schema()
            altered = app.configs.alter(
                request.entity,
                {request.name: request.value},
                author=author(context["dag_run"]),
                check=_LimitCheck(
                    context["dag_run"], app.settings, app.adapters.stores.configs.history(request.entity)
                ),
            )
        for change in altered.changes:
            self.log.info("%s: %s: %s -> %s", change.entity, change.name, change.old_value, change.new_value)
        level = logging.INFO if altered.not_claimed is None else logging.WARNING
        self.log.log(level, "%s", alteration_words(altered))
        return counts(altered)


@dataclass(frozen=True, slots=True)
class _LimitCheck:
    """A limit of deletions is loosened by who may approve deletions, and by one run once.

    Who triggered a run is written by Airflow, and nobody can change it; but a run may be cleared by others, and would
    then do again what its own user wanted then.
    """

    dag_run: Any
    settings: TieringSettings
    history: Sequence[ConfigChange]

    def __call__(self, before: ConfigValues, after: ConfigValues) -> None:
        """Raises LimitRefusedError."""
        approvers, loosened = configuration.expiration_approvers(), loosened_limits(before, after, self.settings)
        if not approvers or not loosened:
            return
        what = "; ".join(map(str, loosened))
        user = self.dag_run.triggering_user_name
        if user not in approvers:
            raise LimitRefusedError(
                f"{what} lets more be deleted without a question, and {user or 'nobody'}, who triggered this run, is "
                f"not among those who may approve deletions ({', '.join(approvers)}; [tiering] expiration_approvers): "
                "nothing was changed. One of them has to trigger it"
            )
        own = author(self.dag_run)
        asked_at = self.dag_run.run_after
        if any(change.author == own for change in self.history):
            why = "this run changed it before, and was started again since"
        elif self.dag_run.clear_number:
            why = "this run was cleared, which others may do, too"
        elif datetime.now(UTC) - asked_at > _COUNTS_FOR:
            why = f"it was asked for at {asked_at:%Y-%m-%d %H:%M} UTC, and that counts for a day"
        else:
            return
        raise LimitRefusedError(f"{what}: {why}: nothing was changed. Trigger another run")


def counts(altered: AlteredConfigs) -> dict[str, int]:
    """For XCom. Raises ConfigNotTakenError if a running worker has not taken the change in time."""
    if altered.not_taken_by:
        raise ConfigNotTakenError(alteration_words(altered))
    return {"changed": len(altered.changes), "version": altered.version, "taken_by": len(altered.taken_by)}
