"""The task of `tiering_configs`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from airflow.sdk import BaseOperator

from include.tiering.errors import ConfigNotTakenError, SettingError
from include.tiering.quota.config_rules import checked_entity
from include.tiering.quota.config_store import ConfigEntity
from include.tiering.reports.configs import alteration_words
from include.tiering.tasks.alter_configs import AlteredConfigs
from plugins.tiering_airflow.hook import TieringHook

if TYPE_CHECKING:
    from airflow.sdk import Context

UNKNOWN_AUTHOR: Final = "Airflow"


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
        """Raises SettingError, ConfigRefusedError, ConfigNotTakenError, MetadataUnavailableError."""
        request = ConfigRequest.from_params(context["params"])
        with TieringHook().open() as tiering:
            tiering.require_schema()
            altered = tiering.alter_configs(
                request.entity, {request.name: request.value}, author=author(context["dag_run"])
            )
        for change in altered.changes:
            self.log.info("%s: %s: %s -> %s", change.entity, change.name, change.old_value, change.new_value)
        self.log.info("%s", alteration_words(altered))
        return counts(altered)


def counts(altered: AlteredConfigs) -> dict[str, int]:
    """For XCom. Raises ConfigNotTakenError if a running worker has not taken the change in time."""
    if altered.not_taken_by:
        raise ConfigNotTakenError(alteration_words(altered))
    return {"changed": len(altered.changes), "version": altered.version, "taken_by": len(altered.taken_by)}


def author(dag_run: Any) -> str:
    """Who triggered the run, as Airflow knows them, and which run it was."""
    return f"{getattr(dag_run, 'triggering_user_name', None) or UNKNOWN_AUTHOR} ({dag_run.dag_id} {dag_run.run_id})"
