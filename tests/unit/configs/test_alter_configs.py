"""Dynamic configs: their catalogue, their rules, and changes."""

import pytest

from include.tiering.configs.config_catalogue import all_configs, config_names, config_on, configs_of
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, ConfigSnapshot, ConfigValues, EntityType
from include.tiering.configs.rules import check_rules, checked_changes, checked_entity, quotas_in_force
from include.tiering.configs.service import POLL_SECONDS, AlteredConfigs, alter_configs
from include.tiering.errors import ConfigRefusedError, LimitRefusedError, MetadataUnavailableError, SettingError
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.settings.catalogue import dynamic_settings
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import MemoryConfigStore, ScriptedLedger

# Dynamic configs: their catalogue, and changes.

# A change is checked, stored, announced, and waited for; repeated, it is announced again.

COPY = "remote.log.manager.copy.max.bytes.per.second"
COPY_SCOPE = Scope.parse("copy/broker/")


@pytest.fixture
def store() -> MemoryConfigStore:
    return MemoryConfigStore()


def alter(
    store: MemoryConfigStore, ledger: ScriptedLedger, value: str | None, clock: ManualClock | None = None
) -> AlteredConfigs:
    return alter_configs(
        ALL_BROKERS, {COPY: value}, store=store, ledger=ledger, clock=clock or ManualClock(), author="ann"
    )


def test_it_returns_when_every_worker_has_taken_it(store: MemoryConfigStore) -> None:
    clock, ledger = ManualClock(), ScriptedLedger(first=1, second=3)
    altered = alter(store, ledger, "10", clock)
    assert [worker.worker_id for worker in altered.taken_by] == ["first", "second"]
    assert altered.not_taken_by == ()
    assert clock.slept == [POLL_SECONDS] * 3
    assert [(change.old_value, change.new_value, change.author) for change in altered.changes] == [(None, "10", "ann")]
    assert ledger.announced == [QuotasInForce(1, {COPY_SCOPE: 10})]


def test_a_check_of_the_caller_sees_both_states_and_may_refuse(store: MemoryConfigStore) -> None:
    seen = []

    def refuse(before: ConfigValues, after: ConfigValues) -> None:
        seen.append((dict(before), dict(after)))
        raise LimitRefusedError("not this one")

    ledger = ScriptedLedger()
    with pytest.raises(LimitRefusedError, match="not this one"):
        alter_configs(
            ALL_BROKERS, {COPY: "10"}, store=store, ledger=ledger, clock=ManualClock(), author="ann", check=refuse
        )
    assert seen == [({}, {ALL_BROKERS: {COPY: "10"}})]
    assert (store.snapshot().values, ledger.announced) == ({}, [])


def test_workers_that_do_not_take_it_in_time_are_named(store: MemoryConfigStore) -> None:
    clock = ManualClock()
    altered = alter(store, ScriptedLedger(quick=0, dead=None), "10", clock)
    assert [worker.worker_id for worker in altered.taken_by] == ["quick"]
    assert [(worker.worker_id, worker.version) for worker in altered.not_taken_by] == [("dead", 0)]
    assert sum(clock.slept) == pytest.approx(5.0, abs=2 * POLL_SECONDS)


def test_without_workers_there_is_nothing_to_wait_for(store: MemoryConfigStore) -> None:
    clock = ManualClock()
    altered = alter(store, ScriptedLedger(), "10", clock)
    assert (altered.taken_by, altered.not_taken_by, clock.slept) == ((), (), [])


def test_repeating_changes_nothing_and_announces_again(store: MemoryConfigStore) -> None:
    ledger = ScriptedLedger()
    first, second = (alter(store, ledger, "10") for _ in range(2))
    assert (second.changes, second.version) == ((), first.version)
    assert len(store.history()) == 1
    assert ledger.announced[0] == ledger.announced[1]


class _LedgerAway(ScriptedLedger):
    def announce(self, quotas: QuotasInForce) -> None:
        raise MetadataUnavailableError("the ledger is away")


def test_a_change_that_was_not_announced_is_repaired_by_repeating_it(store: MemoryConfigStore) -> None:
    words = "the change of brokers default is stored, .* the ledger is away; repeat the command"
    with pytest.raises(MetadataUnavailableError, match=words):
        alter(store, _LedgerAway(), "10")
    assert store.of_entity(ALL_BROKERS) == {COPY: "10"}
    ledger = ScriptedLedger()
    alter(store, ledger, "10")
    assert ledger.in_force().of(COPY_SCOPE) == 10


def test_removing_a_quota_lifts_the_limit(store: MemoryConfigStore) -> None:
    ledger = ScriptedLedger()
    alter(store, ledger, "10")
    alter(store, ledger, None)
    assert ledger.in_force() == QuotasInForce(2, {})


@pytest.mark.parametrize(
    ("entity", "changes", "error"),
    [
        (ALL_BROKERS, {COPY: "10", "remote.log.manager.fetch.max.bytes.per.second": "0"}, SettingError),
        (ALL_BROKERS, {"remote.log.manager.fetch.max.bytes.per.second": "5"}, ConfigRefusedError),
    ],
)
def test_a_refused_change_is_neither_stored_nor_announced(
    store: MemoryConfigStore, entity: ConfigEntity, changes: dict[str, str | None], error: type[Exception]
) -> None:
    ledger, clock = ScriptedLedger(), ManualClock()
    client = {"tiering.fetch.max.bytes.per.second": "5"}
    store.alter(ConfigEntity(EntityType.CLIENTS, "reporting"), client, author="bob")
    before = store.snapshot()
    with pytest.raises(error):
        alter_configs(entity, changes, store=store, ledger=ledger, clock=clock, author="ann")
    assert (store.snapshot(), ledger.announced) == (before, [])


# The table of configs that may be changed live: names, places and bounds are promises to users.

BROKERS, TOPICS, CLIENTS = (ConfigEntity(kind) for kind in EntityType)
BROKER_1, ORDERS, REPORTING = (
    ConfigEntity(kind, name) for kind, name in zip(EntityType, ("1", "orders", "reporting"), strict=True)
)
EVERYWHERE = (BROKERS, BROKER_1, TOPICS, ORDERS, CLIENTS, REPORTING)

LEGAL = {
    "tiering.copy.total.max.bytes.per.second": {BROKERS: "copy/total/"},
    "tiering.fetch.total.max.bytes.per.second": {BROKERS: "fetch/total/"},
    "remote.log.manager.copy.max.bytes.per.second": {BROKERS: "copy/broker/", BROKER_1: "copy/broker/1"},
    "remote.log.manager.fetch.max.bytes.per.second": {BROKERS: "fetch/broker/", BROKER_1: "fetch/broker/1"},
    "tiering.copy.max.bytes.per.second": {TOPICS: "copy/topic/", ORDERS: "copy/topic/orders"},
    "tiering.fetch.max.bytes.per.second": {
        TOPICS: "fetch/topic/",
        ORDERS: "fetch/topic/orders",
        CLIENTS: "fetch/client/",
        REPORTING: "fetch/client/reporting",
    },
    "total.bytes.in.per.sec.threshold": {BROKERS: None, BROKER_1: None},
    "bytes.in.per.sec.threshold": {ORDERS: None},
    "tiering.delete.max.requests.per.second": {BROKERS: "delete/total/"},
    "remote.copy.lag.ms": {ORDERS: None},
    "remote.copy.lag.bytes": {ORDERS: None},
    "log.remote.copy.lag.ms": {BROKERS: None},
    "log.remote.copy.lag.bytes": {BROKERS: None},
    "retention.ms": {ORDERS: None},
    "retention.bytes": {ORDERS: None},
    "remote.log.manager.copier.thread.pool.size": {BROKERS: None},
    "remote.log.manager.expiration.thread.pool.size": {BROKERS: None},
    "remote.log.reader.threads": {BROKERS: None},
    **{setting.name: {BROKERS: None} for setting in dynamic_settings()},
}


def test_every_name_with_its_places_and_scopes() -> None:
    found = {
        name: {
            entity: str(scope) if (scope := config.scope(entity)) else None
            for entity in EVERYWHERE
            for config in configs_of(entity)
            if config.name == name
        }
        for name in config_names()
    }
    assert found == LEGAL


def test_every_row_can_be_explained_to_a_user() -> None:
    for config in all_configs():
        assert config.sentence.endswith("."), config.name
        assert config.accepts
        assert config.unit or config.accepts == "true or false" or config.accepts.startswith("keep, or "), config.name


def test_one_name_means_another_scope_on_another_entity_type() -> None:
    name = "tiering.fetch.max.bytes.per.second"
    assert config_on(ORDERS, name).scope(ORDERS) == Scope(QuotaKind.FETCH, QuotaLevel.TOPIC, "orders")
    assert config_on(REPORTING, name).scope(REPORTING) == Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, "reporting")


def test_kafkas_later_name_of_the_byte_bound_is_an_alias() -> None:
    assert config_on(BROKERS, "queued.max.request.bytes") == config_on(BROKERS, "queued.max.bytes")


@pytest.mark.parametrize(
    ("entity", "name", "words"),
    [
        (BROKERS, "remote.log.manager.copy.max.bytes.per.secnd", "did you mean remote.log.manager.copy.max.bytes.per"),
        (ORDERS, "bytes.in.per.second.threshold", "unknown config .* did you mean bytes.in.per.sec.threshold"),
        (REPORTING, "zzz", "known are tiering.fetch.max.bytes.per.second"),
        (BROKER_1, "tiering.copy.total.max.bytes.per.second", "set on broker 1: it belongs to brokers: default$"),
        (TOPICS, "bytes.in.per.sec.threshold", "set on topics default: it belongs to topics: named"),
        (BROKER_1, "tiering.copier.max.batches", "brokers: default$"),
        (BROKERS, "tiering.fetch.max.bytes.per.second", "topics: default and named; clients: default and named"),
        (BROKERS, "tiering.copier.lease.ms", "unknown config"),
        (TOPICS, "retention.ms", "set on topics default: it belongs to topics: named"),
        (BROKERS, "a\x1b[2J", r"unknown config a\\x1b\[2J"),
    ],
)
def test_a_name_that_is_unknown_or_out_of_place(entity: ConfigEntity, name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        config_on(entity, name)


@pytest.mark.parametrize(
    ("text", "stored"), [("1", "1"), (" 052428800 ", "52428800"), (str(UNLIMITED), str(UNLIMITED))]
)
def test_quotas_are_whole_bytes_a_second(text: str, stored: str) -> None:
    assert config_on(BROKERS, "remote.log.manager.copy.max.bytes.per.second").canonical(text) == stored


@pytest.mark.parametrize("text", ["0", "-1", "", "1.5", "50MB", "1_000", "٣", str(UNLIMITED + 1), "9" * 10_000])
def test_what_is_no_quota_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(SettingError, match=f"accepted: integer, 1 to {UNLIMITED} .bytes a second") as refused:
        config_on(BROKERS, "remote.log.manager.copy.max.bytes.per.second").canonical(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
@pytest.mark.parametrize(
    ("text", "stored"), [("-1", "-1"), ("0", "0"), (" 0604800000", "604800000"), (str(UNLIMITED), str(UNLIMITED))]
)
def test_retention_is_kafkas_range(name: str, text: str, stored: str) -> None:
    assert config_on(ORDERS, name).canonical(text) == stored


@pytest.mark.parametrize("text", ["-2", "--1", "7w", "", "-", str(UNLIMITED + 1)])
def test_what_is_no_retention_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(SettingError, match=rf"accepted: integer, -1 .for ever. to {UNLIMITED} .milliseconds"):
        config_on(ORDERS, "retention.ms").canonical(text)


@pytest.mark.parametrize(("text", "stored"), [("0", "0"), (" 010", "10"), (str(2**31 - 1), str(2**31 - 1))])
def test_a_pool_may_have_no_slots(text: str, stored: str) -> None:
    assert config_on(BROKERS, "remote.log.manager.copier.thread.pool.size").canonical(text) == stored


@pytest.mark.parametrize("text", ["-1", "2147483648", "two", ""])
def test_what_is_no_size_of_a_pool_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"accepted: integer, 0 .a pause. to 2147483647 .slots"):
        config_on(BROKERS, "remote.log.manager.copier.thread.pool.size").canonical(text)


# What one change may be, what values may be together, and which quotas they put in force.

FETCH = "remote.log.manager.fetch.max.bytes.per.second"
CLIENT = "tiering.fetch.max.bytes.per.second"
TOTAL_FETCH = "tiering.fetch.total.max.bytes.per.second"
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


@pytest.mark.parametrize(
    "names", [("queued.max.bytes", "queued.max.request.bytes"), ("queued.max.request.bytes", "queued.max.bytes")]
)
def test_a_name_and_its_alias_contradict_each_other(names: tuple[str, str]) -> None:
    with pytest.raises(SettingError, match=f"^{names[0]} and {names[1]} are names of one config, queued.max.bytes: "):
        checked_changes(ALL_BROKERS, dict(zip(names, ("1", None), strict=True)))


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
        ({ALL_BROKERS: UNLIMITED, broker(1): 5}, {client("a"): UNLIMITED}, None),
        ({broker(1): 5}, {client("a"): UNLIMITED, client("b"): 5}, ("client b", "= 5 ", "broker 1")),
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


def test_a_clients_quota_is_below_the_total() -> None:
    values = {ALL_BROKERS: {TOTAL_FETCH: "50", FETCH: "1000"}, client("a"): {CLIENT: "50"}}
    with pytest.raises(ConfigRefusedError, match=f"client a: .* = 50 is not below brokers default: {TOTAL_FETCH} = 50"):
        check_rules(values)
    check_rules({**values, client("a"): {CLIENT: "49"}})


def test_a_rule_refuses_no_change_of_other_configs() -> None:
    """The values may be older than the rule."""
    values = {ALL_BROKERS: {TOTAL_FETCH: "50"}, client("a"): {CLIENT: "999"}}
    check_rules({**values, topic("orders"): {"retention.ms": "5"}}, values)
    with pytest.raises(ConfigRefusedError):
        check_rules({**values, client("b"): {CLIENT: "50"}}, values)


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


def test_the_threshold_of_a_topic_that_is_gone_is_not_in_the_sum() -> None:
    values = {topic("a"): {TOPIC_IN: "10"}, topic("old"): {TOPIC_IN: "90"}, ALL_BROKERS: {TOTAL_IN: "99"}}
    check_rules(values, gone={"old"})
    with pytest.raises(ConfigRefusedError, match="sum to 100"):
        check_rules(values)


def test_values_that_break_a_rule_may_be_repaired_step_by_step() -> None:
    """The values may be older than the rule, so a change that breaks it less, and nothing more, is accepted."""
    clients = {client("a"): {CLIENT: "999"}, client("b"): {CLIENT: "60"}}
    values = {ALL_BROKERS: {TOTAL_FETCH: "50"}, **clients}
    check_rules({**values, client("a"): {CLIENT: "49"}}, values)
    check_rules({**values, client("a"): {CLIENT: "60"}}, values)
    check_rules({**values, ALL_BROKERS: {TOTAL_FETCH: "55"}}, values)
    for worse in ({client("b"): {CLIENT: "61"}}, {client("c"): {CLIENT: "50"}}, {ALL_BROKERS: {TOTAL_FETCH: "49"}}):
        with pytest.raises(ConfigRefusedError):
            check_rules({**values, **worse}, values)
    values = {topic("a"): {TOPIC_IN: "70"}, topic("b"): {TOPIC_IN: "70"}, ALL_BROKERS: {TOTAL_IN: "100"}}
    check_rules({**values, topic("a"): {TOPIC_IN: "60"}}, values)
    check_rules({**values, ALL_BROKERS: {TOTAL_IN: "120"}}, values)
    for worse in ({topic("a"): {TOPIC_IN: "71"}}, {topic("c"): {TOPIC_IN: "1"}}, {ALL_BROKERS: {TOTAL_IN: "99"}}):
        with pytest.raises(ConfigRefusedError):
            check_rules({**values, **worse}, values)


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
