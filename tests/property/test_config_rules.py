"""Random changes of dynamic configs: what is stored never breaks a rule, and a refusal always has a reason."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from include.tiering.configs.config_store import ConfigEntity, ConfigValues, EntityType
from include.tiering.configs.service import alter_configs
from include.tiering.errors import ConfigRefusedError
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, Scope
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import MemoryConfigStore, ScriptedLedger

BROKER_FETCH = "remote.log.manager.fetch.max.bytes.per.second"
CLIENT_FETCH = "tiering.fetch.max.bytes.per.second"
TOTAL_IN, TOPIC_IN = "total.bytes.in.per.sec.threshold", "bytes.in.per.sec.threshold"

Change = tuple[ConfigEntity, dict[str, str | None]]

amounts = st.none() | st.sampled_from([UNLIMITED]).map(str) | st.integers(1, 12).map(str)


def on(kind: EntityType, entities: tuple[str, ...], *names: str) -> st.SearchStrategy[Change]:
    return st.tuples(
        st.sampled_from([ConfigEntity(kind, name) for name in entities]),
        st.dictionaries(st.sampled_from(names), amounts, min_size=1),
    )


changes = st.one_of(
    on(EntityType.BROKERS, ("", "1", "2"), BROKER_FETCH, TOTAL_IN),
    on(EntityType.TOPICS, ("a", "b", "c"), TOPIC_IN, CLIENT_FETCH),
    on(EntityType.CLIENTS, ("", "x", "y"), CLIENT_FETCH),
)


def holds(values: ConfigValues) -> bool:
    """The rules once more, by comparing each with each."""

    def of(kind: EntityType, name: str) -> list[int]:
        return [int(v[name]) for e, v in values.items() if e.entity_type is kind and name in v]

    clients_below_brokers = all(
        client < broker or UNLIMITED in (client, broker)
        for client in of(EntityType.CLIENTS, CLIENT_FETCH)
        for broker in of(EntityType.BROKERS, BROKER_FETCH)
    )
    explicit = sum(of(EntityType.TOPICS, TOPIC_IN))
    return clients_below_brokers and all(explicit <= total for total in of(EntityType.BROKERS, TOTAL_IN))


def changed(values: ConfigValues, entity: ConfigEntity, change: Mapping[str, str | None]) -> ConfigValues:
    own = {name: value for name, value in {**values.get(entity, {}), **change}.items() if value is not None}
    return {one: configs for one, configs in {**values, entity: own}.items() if configs}


@given(st.lists(changes, max_size=25))
def test_exactly_the_changes_that_keep_every_rule_are_made(steps: list[Change]) -> None:
    store, ledger = MemoryConfigStore(), ScriptedLedger()
    expected: ConfigValues = {}
    for entity, change in steps:
        wanted = changed(expected, entity, change)
        try:
            alter_configs(entity, change, store=store, ledger=ledger, clock=ManualClock(), author="ann")
        except ConfigRefusedError:
            assert not holds(wanted)
        else:
            assert holds(wanted)
            expected = wanted
        assert store.snapshot().values == expected
        in_force = ledger.in_force().bytes_per_second
        clients = (ConfigEntity(EntityType.CLIENTS, name) for name in ("", "x", "y"))
        assert {one: expected.get(one, {}).get(CLIENT_FETCH) for one in clients} == {
            ConfigEntity(EntityType.CLIENTS, name): None if (quota := in_force.get(scope)) is None else str(quota)
            for name in ("", "x", "y")
            for scope in [Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, name)]
        }
