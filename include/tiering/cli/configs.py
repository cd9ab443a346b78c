"""`./tiering configs` and `pools`.

`configs` shows and changes quotas and dynamic settings, with the flags of kafka-configs. `pools` shows Airflow's pools,
whose sizes have the names of Kafka's thread pool configs.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
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
    add_config_file: Annotated[
        Path | None,
        typer.Option(
            "--add-config-file", help="Set these: a file with NAME=VALUE lines.", metavar="FILE", dir_okay=False
        ),
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
    broker: Annotated[
        str | None, typer.Option("--broker", help="Short for --entity-type brokers --entity-name ID.", metavar="ID")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Short for --entity-type topics --entity-name NAME.", metavar="NAME")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", help="Short for --entity-type clients --entity-name ID.", metavar="ID")
    ] = None,
    broker_defaults: Annotated[
        bool, typer.Option("--broker-defaults", help="Short for --entity-type brokers --entity-default.")
    ] = False,
    client_defaults: Annotated[
        bool, typer.Option("--client-defaults", help="Short for --entity-type clients --entity-default.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --describe: settings that cannot be changed while jobs run, too.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help=f"Show all changes, not only the latest {LATEST_CHANGES}.")
    ] = False,
    target: Annotated[
        Target, typer.Option("--target", help="Whose configs: this platform's, those of Kafka's brokers, or both.")
    ] = Target.PLATFORM,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --target brokers: let the brokers check it, and change nothing.")
    ] = False,
    allow_unknown: AllowUnknown = False,
    bootstrap_server: Annotated[str | None, typer.Option("--bootstrap-server", hidden=True)] = None,
    bootstrap_controller: Annotated[str | None, typer.Option("--bootstrap-controller", hidden=True)] = None,
    command_config: Annotated[str | None, typer.Option("--command-config", hidden=True)] = None,
    as_json: Json = False,
) -> None:
    """Show or change quotas and settings while jobs run.

    A change is checked against all other values and stored with its author. The command waits up to 5 seconds until all
    running workers use it, and names the workers that do not.

    * every broker may copy 50 MiB a second: `./tiering configs --alter --entity-type brokers --entity-default
      --add-config remote.log.manager.copy.max.bytes.per.second=52428800`, or `./tiering configs --alter
      --broker-defaults --add-config remote.log.manager.copy.max.bytes.per.second=50MiB`
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
    value from the other sources of settings. A value that was never set cannot be deleted. --describe shows the value
    in force, its source, and the values that would be in force without it. Exit codes: 0 done, 1 refused by a rule or
    not used by all workers yet, 2 unknown name or invalid value, 3 the database, the brokers or Airflow do not answer.
    """
    _refuse_connection(bootstrap_server or bootstrap_controller, command_config)
    if describe == alter:
        raise SettingError("use either --describe or --alter")
    if alter and history:
        raise SettingError("--history goes with --describe")
    if alter and everything:
        raise SettingError("--all goes with --describe")
    short: dict[str, str | bool | None] = {"--broker": broker, "--topic": topic, "--client": client}
    short |= {"--broker-defaults": broker_defaults or None, "--client-defaults": client_defaults or None}
    entity_type, entity_name, entity_default = _spelled_out(entity_type, entity_name, entity_default, short)
    entity = _entity(entity_type, entity_name, entity_default)
    changes = _changes(add_config or (), add_config_file, delete_config or ())
    _check_changes(entity, changes, alter=alter)
    if dry_run and (not alter or target is not Target.BROKERS):
        raise SettingError("--dry-run goes with --alter --target brokers")
    with session_of(ctx).opened() as app:
        is_removal = alter and all(value is None for value in changes.values())
        if entity is not None and not allow_unknown and not is_removal:
            warn_all(app.operations.names.check_entity(entity, or_was_known=describe))
        if alter and entity is not None:
            presentation = _altered(app, entity, changes, target, dry_run=dry_run)
        else:
            presentation = _shown(app, entity_type, entity, target, whole_history=history, static=everything)
    finish(presentation, as_json=as_json)


def _check_changes(entity: "ConfigEntity | None", changes: dict[str, str | None], *, alter: bool) -> None:
    """Raise SettingError if --alter lacks an entity or changes, or if there are changes without it."""
    if changes and not alter:
        raise SettingError("--add-config, --add-config-file and --delete-config go with --alter")
    if alter and entity is None:
        raise SettingError(
            "--alter needs --entity-type and one of --entity-name and --entity-default, or one of --broker, "
            "--topic, --client, --broker-defaults, --client-defaults"
        )
    if alter and not changes:
        raise SettingError("--alter needs --add-config NAME=VALUE or --delete-config NAME")


def _altered(
    app: "App", entity: "ConfigEntity", changes: dict[str, str | None], target: Target, *, dry_run: bool
) -> "Presentation":
    """Change the configs. For both targets, let the brokers validate the change first, and change theirs last."""
    from include.tiering.configs.report import present_alteration
    from include.tiering.configs.rules import refuse_removal_of_unset
    from include.tiering.operations.broker_configs import present_broker_alteration, together

    check = refuse_removal_of_unset(entity, changes, app.adapters.stores.configs.history(entity))
    if target is Target.PLATFORM:
        return present_alteration(app.configs.alter(entity, changes, author=author(), check=check))
    if target is Target.BROKERS:
        return present_broker_alteration(app.broker_configs.alter(entity, changes, dry_run=dry_run))
    app.broker_configs.alter(entity, changes, dry_run=True)
    platform = present_alteration(app.configs.alter(entity, changes, author=author(), check=check))
    try:
        brokers = present_broker_alteration(app.broker_configs.alter(entity, changes))
    except BrokersError as error:
        raise type(error)(
            f"this platform's configs were changed ({platform.summary}), Kafka's were not: {error}"
        ) from error
    return together(platform, brokers)


def _shown(
    app: "App",
    entity_type: str | None,
    entity: "ConfigEntity | None",
    target: Target,
    *,
    whole_history: bool,
    static: bool,
) -> "Presentation":
    from include.tiering.operations.broker_configs import present_broker_configs, together

    if target is Target.PLATFORM:
        return _described(app, entity_type, entity, whole_history=whole_history, static=static)
    if entity_type not in (None, "brokers"):
        raise SettingError(
            f"--entity-type {entity_type} exists only on this platform: --target {target} is for brokers"
        )
    brokers = present_broker_configs(app.broker_configs.describe(entity))
    if target is Target.BROKERS:
        return brokers
    return together(_described(app, entity_type, entity, whole_history=whole_history, static=static), brokers)


def _described(
    app: "App", entity_type: str | None, entity: "ConfigEntity | None", *, whole_history: bool, static: bool
) -> "Presentation":
    from include.tiering.configs.config_store import ALL_BROKERS
    from include.tiering.configs.report import describe_now, describe_static, present_configs
    from include.tiering.configs.rules import checked_entity

    kind = None if entity_type is None else checked_entity(entity_type, None).entity_type
    # A request to Airflow may take seconds, so it is sent only if sizes of pools are shown.
    found = describe_now(
        app.adapters.stores.configs,
        app.settings,
        app.configs.pools_status,
        entity=entity,
        entity_type=kind,
        changes=None if whole_history else LATEST_CHANGES,
    )
    is_of_brokers = any(config.entity == ALL_BROKERS for config in found.configs)
    static_configs = describe_static(app.settings) if static and is_of_brokers else ()
    return present_configs((*found.configs, *static_configs), found.history, found.without_effect)


def _refuse_connection(bootstrap: str | None, command_config: str | None) -> None:
    """Raise SettingError if the command was given a connection to brokers, as kafka-configs is."""
    if bootstrap is not None or command_config is not None:
        option = "--command-config" if bootstrap is None else "--bootstrap-server"
        raise SettingError(
            f"leave {option} out: these configs are stored in this platform's database, not in Kafka. To change those "
            "of Kafka's brokers, add --target brokers; the settings cluster.* say how the brokers are reached"
        )


_ENTITY_OF_OPTION: Final = {
    "--broker": "brokers",
    "--topic": "topics",
    "--client": "clients",
    "--broker-defaults": "brokers",
    "--client-defaults": "clients",
}


def _spelled_out(
    entity_type: str | None, name: str | None, default: bool, short: dict[str, str | bool | None]
) -> tuple[str | None, str | None, bool]:
    """Return type, name and whether it is the default, also if one of the short options names the entity."""
    given = [option for option, value in short.items() if value is not None]
    if not given:
        return entity_type, name, default
    long = {"--entity-type": entity_type, "--entity-name": name, "--entity-default": default or None}
    given += [option for option, value in long.items() if value is not None]
    if len(given) > 1:
        raise SettingError(f"{given[0]} and {given[1]} both name an entity: a command is about one of them")
    value = short[given[0]]
    return _ENTITY_OF_OPTION[given[0]], value if isinstance(value, str) else None, value is True


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


def _changes(added: Iterable[str], file: Path | None, deleted: Iterable[str]) -> dict[str, str | None]:
    from include.tiering.configs.rules import parsed_changes

    lines = () if file is None else _lines(file)
    return parsed_changes([*lines, *_items(added)], _items(deleted))


def _items(lists: Iterable[str]) -> Iterator[str]:
    return (item.strip() for listed in lists for item in listed.split(",") if item.strip())


def _lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file of properties without comments and empty lines."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SettingError(f"--add-config-file {file}: the file is no UTF-8 text") from None
    return (line.strip() for line in text.splitlines() if line.strip() and line.strip()[0] not in "#!")


def pools(ctx: typer.Context, as_json: Json = False) -> None:
    """Show the pools that batches run in: slots, tasks that run, tasks that wait for a slot or a worker, live batches.

    Airflow stores the size of a pool. If Airflow cannot be reached (airflow.url, airflow.login_file), the command shows
    the last known sizes. Resize a pool in Airflow, or here:

    * `./tiering configs --alter --entity-type brokers --entity-default --add-config
      remote.log.manager.copier.thread.pool.size=4`; 0 is a pause.
    """
    with session_of(ctx).opened() as app:
        status = app.configs.pools_status()
    from include.tiering.configs.usage_report import present_pools

    finish(present_pools(status), as_json=as_json)
