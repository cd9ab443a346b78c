"""What one change may be, what values may be together, and which quotas they put in force."""

import pytest

from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, ConfigSnapshot, EntityType
from include.tiering.configs.rules import check_rules, checked_changes, checked_entity, quotas_in_force
from include.tiering.errors import ConfigRefusedError, SettingError
from include.tiering.quotas.contract import UNLIMITED, Scope

COPY = "remote.log.manager.copy.max.bytes.per.second"
FETCH = "remote.log.manager.fetch.max.bytes.per.second"
CLIENT = "tiering.fetch.max.bytes.per.second"
TOTAL_IN, TOPIC_IN = "total.bytes.in.per.sec.threshold", "bytes.in.per.sec.threshold"
ALL_CLIENTS = ConfigEntity(EntityType.CLIENTS)


def broker(broker_id: int) -> ConfigEntity:
    return ConfigEntity(EntityType.BROKERS, str(broker_id))


def topic(name: str) -> ConfigEntity:
    return ConfigEntity(EntityType.TOPICS, name)


def client(name: str) -> ConfigEntity:
    return ConfigEntity(EntityType.CLIENTS, name)


@pytest.mark.parametrize(
    ("kind", "name", "entity"),
    [
        ("brokers", None, ALL_BROKERS),
        ("brokers", "007", broker(7)),
        ("topics", "orders.eu-1", topic("orders.eu-1")),
        ("clients", "Nightly report, ü/1", client("Nightly report, ü/1")),
        ("clients", "c" * 255, client("c" * 255)),
    ],
)
def test_entities(kind: str, name: str | None, entity: ConfigEntity) -> None:
    assert checked_entity(kind, name) == entity


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("users", "ann", "entity type 'users': accepted: brokers, topics, clients"),
        ("brokers", "one", "'one' is no broker: accepted: the id of a broker, 0 to 2147483647"),
        ("brokers", "-1", "no broker"),
        ("brokers", "2147483648", "no broker"),
        ("brokers", "", "'' is no broker"),
        ("topics", "a/b", "'a/b' is no topic: accepted: 1 to 249 of letters"),
        ("topics", "..", "no topic"),
        ("clients", "", "'' is no client: accepted: 1 to 255 printable characters"),
        ("clients", "c" * 256, "no client"),
        ("clients", "a\x00b", r"'a\\\\x00b' is no client"),
    ],
)
def test_what_is_no_entity(kind: str, name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        checked_entity(kind, name)


def test_changes_are_stored_under_one_name_and_in_one_form() -> None:
    changes = {
        "queued.max.request.bytes": " 01024",
        "tiering.unfinished.copy.expiry.ms": "90000",
        "tiering.copy.fairness.enable": "False",
        COPY: None,
    }
    assert checked_changes(ALL_BROKERS, changes) == {
        "queued.max.bytes": "1024",
        "tiering.abandoned.copy.expiry.ms": "90000",
        "tiering.copy.fairness.enable": "false",
        COPY: None,
    }


def test_a_name_and_its_alias_contradict_each_other() -> None:
    with pytest.raises(SettingError, match=r"queued\.max\.bytes a second time"):
        checked_changes(ALL_BROKERS, {"queued.max.bytes": "1", "queued.max.request.bytes": None})


def test_what_another_version_stored_can_be_removed_but_not_set() -> None:
    assert checked_changes(ALL_BROKERS, {"of.a.later.version": None}, stored=["of.a.later.version"]) == {
        "of.a.later.version": None
    }
    with pytest.raises(SettingError, match="unknown config"):
        checked_changes(ALL_BROKERS, {"of.a.later.version": None})
    with pytest.raises(SettingError, match="unknown config"):
        checked_changes(ALL_BROKERS, {"of.a.later.version": "1"}, stored=["of.a.later.version"])


@pytest.mark.parametrize(
    ("brokers", "clients", "numbers"),
    [
        ({}, {client("a"): 100}, None),
        ({ALL_BROKERS: 10}, {}, None),
        ({ALL_BROKERS: 10}, {client("a"): 9}, None),
        ({ALL_BROKERS: 10}, {client("a"): 10}, ("client a", "= 10 ", "brokers default")),
        ({ALL_BROKERS: 10}, {ALL_CLIENTS: 11}, ("clients default", "= 11 ")),
        (
            {ALL_BROKERS: 100, broker(2): 10},
            {client("a"): 9, client("b"): 20},
            ("client b", "= 20 ", "broker 2", "= 10"),
        ),
        ({broker(1): UNLIMITED}, {client("a"): UNLIMITED}, None),
        ({ALL_BROKERS: UNLIMITED, broker(1): 5}, {client("a"): UNLIMITED}, ("broker 1", "= 5", str(UNLIMITED))),
    ],
)
def test_a_clients_quota_is_below_the_lowest_of_the_brokers(
    brokers: dict[ConfigEntity, int], clients: dict[ConfigEntity, int], numbers: tuple[str, ...] | None
) -> None:
    values = {entity: {FETCH: str(value)} for entity, value in brokers.items()}
    values |= {entity: {CLIENT: str(value)} for entity, value in clients.items()}
    if numbers is None:
        check_rules(values)
        return
    with pytest.raises(ConfigRefusedError) as refused:
        check_rules(values)
    assert [number for number in numbers if number not in str(refused.value)] == []


def test_a_topics_own_fetch_quota_is_not_a_clients() -> None:
    check_rules({ALL_BROKERS: {FETCH: "10"}, topic("orders"): {CLIENT: "100"}})


@pytest.mark.parametrize(("total", "fits"), [(None, True), (30, True), (29, False)])
@pytest.mark.parametrize("carrier", [ALL_BROKERS, broker(3)])
def test_topic_thresholds_fit_into_every_total(carrier: ConfigEntity, total: int | None, fits: bool) -> None:
    values = {topic("a"): {TOPIC_IN: "10"}, topic("b"): {TOPIC_IN: "20"}, broker(1): {TOTAL_IN: "1000"}}
    if total is not None:
        values[carrier] = {TOTAL_IN: str(total)}
    if fits:
        check_rules(values)
        return
    with pytest.raises(ConfigRefusedError, match=rf"{carrier}: .*sum to 30 .*b 20, a 10.* = 29"):
        check_rules(values)


def test_quotas_in_force_by_scope() -> None:
    values = {
        ALL_BROKERS: {
            COPY: "10",
            "tiering.copy.total.max.bytes.per.second": "30",
            "tiering.copier.max.batches": "2",
            "tiering.topic.quotas.enable": "true",
        },
        broker(1): {COPY: str(UNLIMITED), FETCH: "5", TOTAL_IN: "9"},
        topic("orders"): {"tiering.copy.max.bytes.per.second": "3", CLIENT: "2", TOPIC_IN: "1"},
        ALL_CLIENTS: {CLIENT: "4"},
        client("reporting"): {CLIENT: "1", "of.a.later.version": "x"},
    }
    quotas = quotas_in_force(ConfigSnapshot(7, values))
    assert quotas.version == 7
    assert {str(scope): value for scope, value in quotas.bytes_per_second.items()} == {
        "copy/total/": 30,
        "copy/broker/": 10,
        "copy/broker/1": UNLIMITED,
        "fetch/broker/1": 5,
        "copy/topic/orders": 3,
        "fetch/topic/orders": 2,
        "fetch/client/": 4,
        "fetch/client/reporting": 1,
    }
    asked = ("copy/broker/1", "copy/broker/2", "fetch/broker/2", "fetch/client/x", "copy/topic/x")
    assert [quotas.of(Scope.parse(scope)) for scope in asked] == [None, 10, None, 4, None]
