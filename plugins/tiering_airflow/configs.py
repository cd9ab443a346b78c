"""The task of `tiering_configs`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from airflow.sdk import BaseOperator

from include.tiering.configs.config_store import ConfigChange, ConfigEntity, ConfigValues
from include.tiering.configs.report import alteration_words, change_words
from include.tiering.configs.rules import checked_entity, loosened_limits, parsed_changes
from include.tiering.configs.service import AlteredConfigs
from include.tiering.errors import ConfigNotTakenError, LimitRefusedError, SettingError
from include.tiering.settings import TieringSettings
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.shared import author

if TYPE_CHECKING:
    from airflow.sdk import Context

ALLOW_UNKNOWN: Final = "allow_unknown"
_COUNTS_FOR: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """The entity, and the changes that the form of `tiering_configs` asks for; a value of None removes a config."""

    entity: ConfigEntity
    changes: Mapping[str, str | None]

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """Read the form. Raises SettingError for fields that contradict each other, or an illegal name of an entity."""
        named, value = params["entity_name"] or None, params["value"] or None
        several = parsed_changes(params["set"] or (), params["remove"] or ())
        if (named is None) is not params["entity_default"]:
            raise SettingError(
                f"Default is on, and entity {named} is named: switch Default off, or leave the name empty"
                if named
                else "switch Default on, or name an entity"
            )
        single = {params["name"]: value} if value is not None or params["delete"] else {}
        if value is not None and params["delete"]:
            raise SettingError("a value is given and Remove is on")
        if not single and not several:
            raise SettingError("give a value, or switch Remove on, or fill in one of the fields for several changes")
        if params["name"] in several and single:
            raise SettingError(f"{params['name']} is changed twice: leave one of them out")
        return cls(checked_entity(params["entity_type"], named), {**single, **several})


class AlterConfigOperator(BaseOperator):
    """Changes dynamic configs as the form says: all, or none with the numbers if a rule refuses one."""

    def execute(self, context: "Context") -> dict[str, int]:
        """Run the task.

        Raises SettingError, ConfigRefusedError, LimitRefusedError, ConfigNotTakenError, MetadataUnavailableError.
        """
        request = ConfigRequest.from_params(context["params"])
        with TieringHook().open() as app:
            app.operations.require_schema()
            if any(value is not None for value in request.changes.values()) and not context["params"].get(
                ALLOW_UNKNOWN
            ):
                for warning in app.operations.names.check_entity(request.entity):
                    self.log.warning("%s", warning)
            altered = app.configs.alter(
                request.entity,
                request.changes,
                author=author(context["dag_run"]),
                check=_LimitCheck(
                    context["dag_run"], app.settings, app.adapters.stores.configs.history(request.entity)
                ),
            )
        for change in altered.changes:
            self.log.info("%s", change_words(change))
        level = logging.INFO if altered.not_claimed is None else logging.WARNING
        self.log.log(level, "%s", alteration_words(altered))
        return counts(altered)


@dataclass(frozen=True, slots=True)
class _LimitCheck:
    """If approvers are configured, lets only them loosen a deletion limit, by a run that is new.

    A run is new if it has not changed a config of the entity before, was not cleared, and was requested at most a day
    ago. Airflow records who triggered a run, and users cannot change that record; but other users may clear the run,
    which would then repeat the change in the name of the user who triggered it.
    """

    dag_run: Any
    settings: TieringSettings
    history: Sequence[ConfigChange]

    def __call__(self, before: ConfigValues, after: ConfigValues) -> None:
        """Check a change. Raises LimitRefusedError, which says who may make it, and how."""
        approvers, loosened = configuration.expiration_approvers(), loosened_limits(before, after, self.settings)
        if not approvers or not loosened:
            return
        what = "; ".join(map(str, loosened))
        user = self.dag_run.triggering_user_name
        if user not in approvers:
            raise LimitRefusedError(
                f"{what} allows more deletions without an approval, and {user or 'an unknown user'}, who triggered "
                f"this run, may not approve deletions ({', '.join(approvers)} may; [tiering] expiration_approvers): "
                "nothing was changed. An approver has to trigger such a run"
            )
        own = author(self.dag_run)
        asked_at = self.dag_run.run_after
        if any(change.author == own for change in self.history):
            why = "this run changed it before, and was started again since"
        elif self.dag_run.clear_number:
            why = "this run was cleared, which other users may do, too"
        elif datetime.now(UTC) - asked_at > _COUNTS_FOR:
            why = f"it was requested at {asked_at:%Y-%m-%d %H:%M} UTC, more than a day ago"
        else:
            return
        raise LimitRefusedError(f"{what}: {why}: nothing was changed. Trigger another run")


def counts(altered: AlteredConfigs) -> dict[str, int]:
    """Return counts for XCom. Raises ConfigNotTakenError if a running worker has not applied the change in time."""
    if altered.not_taken_by:
        raise ConfigNotTakenError(alteration_words(altered))
    return {"changed": len(altered.changes), "version": altered.version, "taken_by": len(altered.taken_by)}
