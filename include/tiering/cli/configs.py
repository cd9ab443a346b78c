"""`./tiering configs` and `pools`.

`configs` shows and changes quotas and dynamic settings, with the flags of kafka-configs. `pools` shows Airflow's pools,
whose sizes have the names of Kafka's thread pool configs.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from include.tiering.cli.command import AllowUnknown, Json, author, finish, session_of, warn_all
from include.tiering.errors import BrokersError, SettingError

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.configs.config_store import ConfigEntity
    from include.tiering.presentation import Presentation


LATEST_CHANGES: Final = 20


class Target(StrEnum):
    """Whose configs a command is about."""

    PLATFORM = "platform"
    BROKERS = "brokers"
    BOTH = "both"


def configs(
    ctx: typer.Context,
    describe: Annotated[bool, typer.Option("--describe", help="Show values, their sources, and changes.")] = False,
    alter: Annotated[bool, typer.Option("--alter", help="Change values of one entity.")] = False,
    add_config: Annotated[
        list[str] | None, typer.Option("--add-config", help="Set these; may be repeated.", metavar="NAME=VALUE,...")
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", help="Remove these; may be repeated.", metavar="NAME,...")
    ] = None,
    entity_type: Annotated[
        str | None, typer.Option("--entity-type", help="Kind of entity.", metavar="brokers|topics|clients")
    ] = None,
    entity_name: Annotated[
        str | None, typer.Option("--entity-name", help="Broker id, topic or client id.", metavar="NAME")
    ] = None,
    entity_default: Annotated[
        bool, typer.Option("--entity-default", help="The default of all entities that have no value of their own.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help=f"All changes; without it the latest {LATEST_CHANGES}.")
    ] = False,
    target: Annotated[
        Target, typer.Option("--target", help="Whose configs: this platform's, those of Kafka's brokers, or both.")
    ] = Target.PLATFORM,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --target brokers: let the brokers check it, and change nothing.")
    ] = False,
    allow_unknown: AllowUnknown = False,
    as_json: Json = False,
) -> None:
    """Show or change quotas and settings while jobs run.

    A change is checked against all other values and stored with its author. The command waits up to 5 seconds until all
    running workers use it, and names the workers that do not.

    * every broker may copy 50 MiB a second: `./tiering configs --alter --entity-type brokers --entity-default
      --add-config remote.log.manager.copy.max.bytes.per.second=52428800`
    * all brokers together may copy 80 MiB a second: `... --entity-default --add-config
      tiering.copy.total.max.bytes.per.second=83886080`
    * one client may read less than the others: `./tiering configs --alter --entity-type clients --entity-name reporting
      --add-config tiering.fetch.max.bytes.per.second=1048576`
    * four copy batches at once, in Airflow's pool: `... --entity-default --add-config
      remote.log.manager.copier.thread.pool.size=4`; 0 is a pause
    * remove the quota of that client: `./tiering configs --alter --entity-type clients --entity-name reporting
    --delete-config
      tiering.fetch.max.bytes.per.second`

    These are the platform's own configs. Kafka's brokers have configs of the same names for what they copy themselves;
    those are changed only with `--target brokers` or `--target both`, by the brokers' admin API:

    * what each broker's own copies may send: `./tiering configs --target brokers --alter --entity-type brokers
      --entity-default --add-config remote.log.manager.copy.max.bytes.per.second=52428800`; with `--dry-run` the brokers
      only check the change

    All names are in docs/settings.md. A quota that is not set is unlimited; a dynamic setting that is not set has its
    value from the other sources of settings. Exit codes: 0 done, 1 refused by a rule or not used by all workers yet, 2
    unknown name or invalid value, 3 the database, the brokers or Airflow do not answer.
    """
    if describe == alter:
        raise SettingError("use either --describe or --alter")
    if alter and history:
        raise SettingError("--history goes with --describe")
    entity = _entity(entity_type, entity_name, entity_default)
    changes = _changes(add_config or (), delete_config or ())
    if alter:
        if entity is None:
            raise SettingError("--alter needs --entity-type and one of --entity-name and --entity-default")
        if not changes:
            raise SettingError("--alter needs --add-config NAME=VALUE or --delete-config NAME")
    elif changes:
        raise SettingError("--add-config and --delete-config go with --alter")
    if dry_run and (not alter or target is not Target.BROKERS):
        raise SettingError("--dry-run goes with --alter --target brokers")
    with session_of(ctx).opened() as app:
        if alter and entity is not None:
            if not allow_unknown and any(value is not None for value in changes.values()):
                warn_all(app.operations.names.check_entity(entity))
            presentation = _altered(app, entity, changes, target, dry_run=dry_run)
        else:
            presentation = _shown(app, entity_type, entity, target, whole_history=history)
    finish(presentation, as_json=as_json)


def _altered(
    app: "App", entity: "ConfigEntity", changes: dict[str, str | None], target: Target, *, dry_run: bool
) -> "Presentation":
    """Change the configs. For both targets, let the brokers validate the change first, and change theirs last."""
    from include.tiering.configs.report import present_alteration
    from include.tiering.operations.broker_configs import present_broker_alteration, together

    if target is Target.PLATFORM:
        return present_alteration(app.configs.alter(entity, changes, author=author()))
    if target is Target.BROKERS:
        return present_broker_alteration(app.broker_configs.alter(entity, changes, dry_run=dry_run))
    app.broker_configs.alter(entity, changes, dry_run=True)
    platform = present_alteration(app.configs.alter(entity, changes, author=author()))
    try:
        brokers = present_broker_alteration(app.broker_configs.alter(entity, changes))
    except BrokersError as error:
        raise type(error)(
            f"this platform's configs were changed ({platform.summary}), Kafka's were not: {error}"
        ) from error
    return together(platform, brokers)


def _shown(
    app: "App", entity_type: str | None, entity: "ConfigEntity | None", target: Target, *, whole_history: bool
) -> "Presentation":
    from include.tiering.operations.broker_configs import present_broker_configs, together

    if target is Target.PLATFORM:
        return _described(app, entity_type, entity, whole_history=whole_history)
    if entity_type not in (None, "brokers"):
        raise SettingError(
            f"--entity-type {entity_type} exists only on this platform: --target {target} is for brokers"
        )
    brokers = present_broker_configs(app.broker_configs.describe(entity))
    if target is Target.BROKERS:
        return brokers
    return together(_described(app, entity_type, entity, whole_history=whole_history), brokers)


def _described(
    app: "App", entity_type: str | None, entity: "ConfigEntity | None", *, whole_history: bool
) -> "Presentation":
    from include.tiering.configs.config_store import ALL_BROKERS
    from include.tiering.configs.report import describe, entities_with_configs, present_configs
    from include.tiering.configs.rules import checked_entity

    values = app.adapters.stores.configs.snapshot().values
    kind = None if entity_type is None else checked_entity(entity_type, None).entity_type
    entities = (entity,) if entity is not None else entities_with_configs(values, kind)
    # A request to Airflow may take seconds, so it is sent only if sizes of pools are shown.
    pools = app.configs.pools_status() if ALL_BROKERS in entities else None
    described = [config for described in entities for config in describe(described, values, app.settings, pools)]
    history = app.adapters.stores.configs.history(entity)
    changes = [change for change in history if kind in (None, change.entity.entity_type)]
    return present_configs(described, changes if whole_history else changes[-LATEST_CHANGES:])


def _entity(entity_type: str | None, name: str | None, default: bool) -> "ConfigEntity | None":
    """Return the entity that the options name; None if they name no single entity."""
    from include.tiering.configs.rules import checked_entity

    if name is not None and default:
        raise SettingError("--entity-name and --entity-default exclude each other")
    if entity_type is None:
        if name is not None or default:
            raise SettingError("--entity-name and --entity-default need --entity-type")
        return None
    entity = checked_entity(entity_type, name)
    return entity if name is not None or default else None


def _changes(added: Iterable[str], deleted: Iterable[str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for text in _items(added):
        name, separator, value = text.partition("=")
        if not separator:
            raise SettingError(f"--add-config {text}: NAME=VALUE is needed")
        _put(changes, name.strip(), value.strip())
    for name in _items(deleted):
        _put(changes, name, None)
    return changes


def _put(changes: dict[str, str | None], name: str, value: str | None) -> None:
    if name in changes:
        raise SettingError(f"{name} is changed twice: leave one of them out")
    changes[name] = value


def _items(lists: Iterable[str]) -> list[str]:
    return [item.strip() for listed in lists for item in listed.split(",") if item.strip()]


def pools(ctx: typer.Context, as_json: Json = False) -> None:
    """Show the pools that batches run in: slots, tasks that run, tasks that wait for a slot or a worker, live batches.

    Airflow stores the size of a pool. If Airflow cannot be reached (airflow.url, airflow.login_file), the command shows
    the last known sizes. Resize a pool in Airflow, or here:

    * `./tiering configs --alter --entity-type brokers --entity-default --add-config
      remote.log.manager.copier.thread.pool.size=4`; 0 is a pause.
    """
    with session_of(ctx).opened() as app:
        status = app.configs.pools_status()
    from include.tiering.configs.report import present_pools

    finish(present_pools(status), as_json=as_json)
