"""Kafka's own configs on its brokers, as a person sees them: in so many words that they are not this platform's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.kafka.cluster.contract import BrokerConfig, BrokerNode, release_of
from include.tiering.operations.alter_broker_configs import AlteredBrokerConfigs, BrokerConfigChange
from include.tiering.presentation import Document, Presentation, Table, count

_TITLE: Final = "Kafka's own configs, on its brokers"
_NO_VALUE: Final = "(none, or secret)"


@dataclass(frozen=True, slots=True)
class BrokerListing:
    """Configs of tiered storage in force on one broker, by name."""

    broker: BrokerNode
    configs: Mapping[str, BrokerConfig]


def present_broker_configs(listings: Sequence[BrokerListing]) -> Presentation:
    rows = tuple(
        (str(one.broker.broker_id), release_of(one.broker), name, _value(config), _source(config))
        for one in listings
        for name, config in one.configs.items()
    )
    return Presentation(
        lambda: {"brokers": [_listing_document(one) for one in listings]},
        lambda: (Table(_TITLE, ("broker>", "release", "name", "value>", "from"), rows),),
        f"{count(len(rows), 'config')} of Kafka's own on {count(len(listings), 'broker')}",
    )


def present_broker_alteration(altered: AlteredBrokerConfigs) -> Presentation:
    """Not ok if a broker does not show the change."""
    return Presentation(
        lambda: {
            "entity_type": str(altered.entity.entity_type),
            "entity_name": altered.entity.entity_name or None,
            "dry_run": altered.dry_run,
            "brokers": [_change_document(change, altered) for change in altered.changes],
        },
        lambda: (_table(altered),),
        broker_alteration_words(altered),
        ok=not altered.not_taken,
    )


def together(platform: Presentation, brokers: Presentation) -> Presentation:
    """What was shown or done here, and what there."""
    return Presentation(
        lambda: {"platform": platform.document(), "brokers": brokers.document()},
        lambda: (*platform.tables(), *brokers.tables()),
        f"this platform: {platform.summary}; {brokers.summary}",
        ok=platform.ok and brokers.ok,
    )


def broker_alteration_words(altered: AlteredBrokerConfigs) -> str:
    """What was changed where, and which broker does not show it, in a line."""
    names = ", ".join(altered.requested)
    where = "the default of all brokers" if altered.entity.is_default else str(altered.entity)
    if altered.dry_run:
        return f"Kafka's own {names} would be changed on {where}: the brokers accept it; nothing was changed"
    words = f"Kafka's own {names} changed on {where}: "
    if not altered.not_taken:
        in_force = count(len({one.broker_id for one in altered.changes if not one.hidden}), "broker")
        keep = [f"broker {one.broker_id} keeps its own {_value(one.new)}" for one in altered.changes if one.hidden]
        return words + "; ".join((f"in force on {in_force}", *keep))
    missing = "; ".join(f"broker {one.broker_id}: {one.error or _still(one)}" for one in altered.not_taken)
    return words + f"not seen on all of them: {missing}"


def _still(change: BrokerConfigChange) -> str:
    return f"{change.name} is still {_value(change.new)} ({_source(change.new)})"


def _table(altered: AlteredBrokerConfigs) -> Table:
    if altered.dry_run:
        columns: tuple[str, ...] = ("broker>", "name", "is>", "from", "would be>")
        rows = tuple(
            (str(one.broker_id), one.name, _value(one.old), _source(one.old), _wanted(altered.requested[one.name]))
            for one in altered.changes
        )
        return Table(_TITLE, columns, rows)
    columns = ("broker>", "name", "was>", "from", "is>", "from", "taken")
    return Table(
        _TITLE,
        columns,
        tuple(
            (
                str(one.broker_id),
                one.name,
                _value(one.old),
                _source(one.old),
                _value(one.new),
                _source(one.new),
                _taken(one),
            )
            for one in altered.changes
        ),
    )


def _taken(change: BrokerConfigChange) -> str:
    if change.hidden:
        return "keeps its own"
    return "yes" if change.taken else change.error or "no"


def _wanted(value: str | None) -> str:
    return "what it is without" if value is None else value


def _value(config: BrokerConfig) -> str:
    return _NO_VALUE if config.value is None else config.value


def _source(config: BrokerConfig) -> str:
    return str(config.source)


def _listing_document(listing: BrokerListing) -> Document:
    return {
        "broker_id": listing.broker.broker_id,
        "release": release_of(listing.broker),
        "configs": [
            {"name": name, "value": one.value, "source": str(one.source), "read_only": one.read_only}
            for name, one in listing.configs.items()
        ],
    }


def _change_document(change: BrokerConfigChange, altered: AlteredBrokerConfigs) -> Document:
    return {
        "broker_id": change.broker_id,
        "name": change.name,
        "requested": altered.requested[change.name],
        "old_value": change.old.value,
        "old_source": str(change.old.source),
        "new_value": change.new.value,
        "new_source": str(change.new.source),
        "taken": change.taken,
        "hidden": change.hidden,
        "error": change.error or None,
    }
