"""Kafka's own configs: refused whole, changed whole, and looked at until every broker shows the change."""

from typing import Any

import pytest

from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.errors import BrokersRefusedError, BrokersUnavailableError, ConfigRefusedError, SettingError
from include.tiering.kafka.cluster.contract import BrokerConfig, BrokerNode, ConfigSource, release_of
from include.tiering.operations.broker_configs import (
    BrokerConfigService,
    BrokerListing,
    alter_broker_configs,
    broker_alteration_words,
    present_broker_alteration,
    present_broker_configs,
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
    with pytest.raises(ConfigRefusedError, match=f"broker 1 has {name} read-only"):
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


# The service, and what is told of values and of a change.

ANOTHER = "num.network.threads"
SECRET = "remote.log.metadata.manager.impl.prefix"


class Dirs:
    """Of `ClusterLogDirs`, the question whether brokers and log dirs are of one cluster."""

    def __init__(self, error: SettingError | None = None) -> None:
        self.error = error

    def require_cluster(self) -> None:
        if self.error is not None:
            raise self.error


def service(brokers: ModelBrokers, dirs: Dirs | None = None) -> BrokerConfigService:
    return BrokerConfigService(brokers=brokers, log_dirs=dirs or Dirs(), clock=ManualClock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entity", "listed"),
    [(None, [1, 2]), (ALL_BROKERS, [1, 2]), (ONE, [1]), (ConfigEntity(EntityType.BROKERS, "2"), [2])],
)
def test_the_configs_of_tiered_storage_are_listed_by_broker(
    brokers: ModelBrokers, entity: ConfigEntity | None, listed: list[int]
) -> None:
    brokers.broker_defaults[ANOTHER] = "3"
    found = service(brokers).describe(entity)
    assert [each.broker.broker_id for each in found] == listed
    expected = sorted(name for name in BROKER_DEFAULTS if name.startswith("remote.log."))
    assert [list(each.configs) for each in found] == [expected] * len(listed)


def test_brokers_of_another_cluster_are_not_changed(brokers: ModelBrokers) -> None:
    with pytest.raises(SettingError, match="another cluster"):
        service(brokers, Dirs(SettingError("another cluster"))).alter(ONE, {COPY: "5"})
    assert _set(brokers) == {}
    assert service(brokers).alter(ONE, {COPY: "5"}, dry_run=True).dry_run
    assert _set(brokers) == {}
    assert not service(brokers).alter(ONE, {COPY: "5"}).dry_run
    assert _set(brokers) == {1: {COPY: "5"}}


def test_values_are_shown_with_release_and_origin(brokers: ModelBrokers) -> None:
    alter_broker_configs(ONE, {COPY: "5"}, brokers=brokers, clock=ManualClock())
    listings = service(brokers).describe(ONE)
    shown = present_broker_configs(listings)
    assert shown.summary == f"{len(listings[0].configs)} configs of Kafka's own on 1 broker"
    (table,) = shown.tables()
    assert ("1", release_of(listings[0].broker), COPY, "5", "dynamic broker") in table.rows
    document: Any = shown.document()
    (broker,) = document["brokers"]
    assert (broker["broker_id"], broker["release"]) == (1, release_of(listings[0].broker))
    by_name = {each["name"]: each for each in broker["configs"]}
    assert by_name[COPY] == {"name": COPY, "value": "5", "source": "dynamic broker", "read_only": False}
    switch = "remote.log.storage.system.enable"
    assert by_name[switch] == {"name": switch, "value": "true", "source": "default", "read_only": True}


def test_a_value_that_is_not_told_is_no_text() -> None:
    broker = BrokerNode(1, "localhost", 9092, supported_features={})
    hidden = BrokerListing(broker, {SECRET: BrokerConfig(SECRET, None, ConfigSource.BROKER)})
    shown = present_broker_configs([hidden])
    document: Any = shown.document()
    assert document["brokers"][0]["configs"][0]["value"] is None
    assert shown.tables()[0].rows[0][3] not in ("None", "")


def test_each_broker_of_a_change_is_told_with_before_and_after(brokers: ModelBrokers) -> None:
    alter_broker_configs(ONE, {COPY: "5"}, brokers=brokers, clock=ManualClock())
    altered = alter_broker_configs(ALL_BROKERS, {COPY: "7"}, brokers=brokers, clock=ManualClock())
    shown = present_broker_alteration(altered)
    document: Any = shown.document()
    assert document == {
        "entity_type": "brokers",
        "entity_name": None,
        "dry_run": False,
        "brokers": [
            {
                "broker_id": 1,
                "name": COPY,
                "requested": "7",
                "old_value": "5",
                "old_source": "dynamic broker",
                "new_value": "5",
                "new_source": "dynamic broker",
                "taken": True,
                "hidden": True,
                "error": None,
            },
            {
                "broker_id": 2,
                "name": COPY,
                "requested": "7",
                "old_value": BROKER_DEFAULTS[COPY],
                "old_source": "default",
                "new_value": "7",
                "new_source": "dynamic default of all brokers",
                "taken": True,
                "hidden": False,
                "error": None,
            },
        ],
    }
    (table,) = shown.tables()
    assert [row[-1] for row in table.rows] == ["keeps its own", "yes"]


@pytest.mark.parametrize(
    ("asked", "shown", "is_taken"),
    [
        ("007", "7", True),
        (" 7 ", "7", True),
        ("-1", "-1", True),
        ("7", "8", False),
        ("a b", "a b", True),
        ("٧", "7", False),
    ],
)
def test_a_number_is_taken_however_it_was_written(
    brokers: ModelBrokers, asked: str, shown: str, is_taken: bool
) -> None:
    name = "remote.log.storage.manager.class.name"
    brokers.broker_defaults[name] = "x"

    def stores(method: str) -> None:
        if method == "alter_broker_configs":
            brokers.broker_configs_set[1] = {name: shown}

    brokers.after_call = stores
    altered = alter_broker_configs(ONE, {name: asked}, brokers=brokers, clock=ManualClock(), wait_seconds=0)
    assert [one.taken for one in altered.changes] == [is_taken]
