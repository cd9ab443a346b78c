"""Kafka's own configs: refused whole, changed whole, and looked at until every broker shows the change."""

import pytest

from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.errors import BrokersRefusedError, BrokersUnavailableError, ConfigRefusedError, SettingError
from include.tiering.kafka.cluster.contract import ConfigSource
from include.tiering.operations.broker_configs import (
    alter_broker_configs,
    broker_alteration_words,
    present_broker_alteration,
)
from tests.doubles.manual_clock import ManualClock
from tests.doubles.model_brokers import BROKER_DEFAULTS, ModelBrokers

COPY = "remote.log.manager.copy.max.bytes.per.second"
COPIERS = "remote.log.manager.copier.thread.pool.size"
ONE = ConfigEntity(EntityType.BROKERS, "1")


@pytest.fixture
def brokers() -> ModelBrokers:
    return ModelBrokers(brokers=(1, 2))


def _set(brokers: ModelBrokers) -> dict[int | None, dict[str, str]]:
    return {broker: values for broker, values in brokers.broker_configs_set.items() if values}


def test_one_broker_has_what_it_was_and_is(brokers: ModelBrokers) -> None:
    altered = alter_broker_configs(ONE, {COPY: "5", COPIERS: "12"}, brokers=brokers, clock=ManualClock())
    assert _set(brokers) == {1: {COPY: "5", COPIERS: "12"}}
    assert [(one.broker_id, one.name, one.old.value, one.new.value, one.taken) for one in altered.changes] == [
        (1, COPY, BROKER_DEFAULTS[COPY], "5", True),
        (1, COPIERS, "10", "12", True),
    ]
    assert (altered.changes[0].old.source, altered.changes[0].new.source) == (ConfigSource.DEFAULT, ConfigSource.BROKER)
    assert broker_alteration_words(altered).startswith(
        f"Kafka's own {COPY}, {COPIERS} changed on broker 1: in force on 1"
    )


def test_the_default_is_in_force_on_every_broker_without_a_value_of_its_own(brokers: ModelBrokers) -> None:
    alter_broker_configs(ONE, {COPY: "5"}, brokers=brokers, clock=ManualClock())
    altered = alter_broker_configs(ALL_BROKERS, {COPY: "7"}, brokers=brokers, clock=ManualClock())
    assert [(one.broker_id, one.new.value, one.hidden) for one in altered.changes] == [(1, "5", True), (2, "7", False)]
    assert broker_alteration_words(altered).endswith("in force on 1 broker; broker 1 keeps its own 5")
    assert present_broker_alteration(altered).ok


def test_none_removes_and_repeating_is_harmless(brokers: ModelBrokers) -> None:
    for _ in range(2):
        alter_broker_configs(ONE, {COPY: "5"}, brokers=brokers, clock=ManualClock())
    for _ in range(2):
        altered = alter_broker_configs(ONE, {COPY: None}, brokers=brokers, clock=ManualClock())
        assert altered.changes[0].taken
    assert _set(brokers) == {}


def test_a_dry_run_has_it_checked_and_changes_nothing(brokers: ModelBrokers) -> None:
    altered = alter_broker_configs(ONE, {COPY: "5"}, brokers=brokers, clock=ManualClock(), dry_run=True)
    assert _set(brokers) == {}
    assert brokers.calls.count("alter_broker_configs") == 1
    assert "nothing was changed" in broker_alteration_words(altered)
    assert present_broker_alteration(altered).ok
    with pytest.raises(BrokersRefusedError):
        alter_broker_configs(ONE, {COPY: "fast"}, brokers=brokers, clock=ManualClock(), dry_run=True)


def test_a_value_that_brokers_refuse_changes_nothing(brokers: ModelBrokers) -> None:
    with pytest.raises(BrokersRefusedError):
        alter_broker_configs(ONE, {COPIERS: "12", COPY: "fast"}, brokers=brokers, clock=ManualClock())
    assert _set(brokers) == {}


@pytest.mark.parametrize(
    ("entity", "name", "message"),
    [
        (ConfigEntity(EntityType.TOPICS, "orders"), COPY, "topic orders exist only on this platform"),
        (ConfigEntity(EntityType.CLIENTS), COPY, "clients default exist only on this platform"),
        (ONE, "ssl.keystore.password", "ssl.keystore.password is no config of tiered storage"),
        (ONE, "tiering.copy.total.max.bytes.per.second", "is no config of tiered storage"),
    ],
)
def test_what_is_not_kafkas_own_tiered_storage_is_not_changed(
    brokers: ModelBrokers, entity: ConfigEntity, name: str, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        alter_broker_configs(entity, {name: "5"}, brokers=brokers, clock=ManualClock())
    assert brokers.calls == []


def test_a_name_that_brokers_do_not_list_is_refused_with_the_brokers_and_the_nearest(brokers: ModelBrokers) -> None:
    wrong = "remote.log.manager.copier.thread.pool.sice"
    with pytest.raises(ConfigRefusedError, match=f"brokers 1, 2 have no config {wrong}: did you mean {COPIERS}"):
        alter_broker_configs(ALL_BROKERS, {COPY: "5", wrong: "5"}, brokers=brokers, clock=ManualClock())
    assert "alter_broker_configs" not in brokers.calls


def test_what_needs_a_restart_is_refused(brokers: ModelBrokers) -> None:
    name = "remote.log.storage.system.enable"
    with pytest.raises(ConfigRefusedError, match=f"broker 1 has {name} only from server.properties"):
        alter_broker_configs(ONE, {name: "false"}, brokers=brokers, clock=ManualClock())


def test_a_broker_that_is_not_there_is_named_with_those_that_are(brokers: ModelBrokers) -> None:
    with pytest.raises(ConfigRefusedError, match="there is no broker 7: the cluster has 1, 2"):
        alter_broker_configs(ConfigEntity(EntityType.BROKERS, "7"), {COPY: "5"}, brokers=brokers, clock=ManualClock())


def test_a_broker_that_does_not_take_it_in_time_is_named(brokers: ModelBrokers) -> None:
    stored = brokers.broker_configs_set

    def forgets(method: str) -> None:
        if method == "alter_broker_configs":
            brokers.broker_configs_set = {None: {}}

    brokers.after_call = forgets
    clock = ManualClock()
    altered = alter_broker_configs(ONE, {COPY: "5"}, brokers=brokers, clock=clock)
    assert stored
    assert [one.broker_id for one in altered.not_taken] == [1]
    assert clock.monotonic() >= 10
    assert f"broker 1: {COPY} is still {BROKER_DEFAULTS[COPY]} (default)" in broker_alteration_words(altered)
    assert not present_broker_alteration(altered).ok


def test_a_broker_that_goes_away_after_the_change_is_named_beside_those_that_took_it(brokers: ModelBrokers) -> None:
    gone = BrokersUnavailableError("broker localhost:9094: connection refused")

    def goes_away(method: str) -> None:
        if method == "alter_broker_configs" and _set(brokers):
            brokers.fail("broker_configs", gone)

    brokers.after_call = goes_away
    altered = alter_broker_configs(ALL_BROKERS, {COPY: "5"}, brokers=brokers, clock=ManualClock(), wait_seconds=0)
    assert [(one.broker_id, one.taken, one.error) for one in altered.changes] == [(1, False, str(gone)), (2, True, "")]
    assert "not all brokers show it: broker 1: broker localhost:9094: connection refused" in broker_alteration_words(
        altered
    )
