"""TLS and SASL against a real broker: who is let in, what is said to the others, and that no error holds a secret."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from include.tiering.app import open_app
from include.tiering.broker_process.broker_process import free_ports
from include.tiering.errors import BrokersError, BrokersForbiddenError, BrokersLoginError, BrokersUnavailableError
from include.tiering.kafka.cluster.kafka_admin import KafkaBrokers
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.operations.survey import survey
from include.tiering.settings import load_settings
from tests.doubles.kafka_lab.brokers_world import open_brokers
from tests.doubles.kafka_lab.certificates import Authority
from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.produce import Writer
from tests.doubles.kafka_lab.requests import require_kafka

pytestmark = pytest.mark.kafka

PASSWORD = "correct-horse"
WRONG = "battery-staple"
KEY_PASSWORD = "key-of-the-key"


@dataclass(frozen=True)
class Secured:
    """A broker with a SASL_SSL listener, and one that demands a certificate. `trusted` signed both sides."""

    cluster: KafkaCluster
    sasl: str
    mutual: str
    trusted: Authority
    stranger: Authority

    def config(self, mechanism: str = "PLAIN", **more: str | int) -> dict[str, str | int]:
        return {
            "bootstrap.servers": self.sasl,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "tiering",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.trusted.certificate),
            "socket.timeout.ms": 60_000,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def mutual_config(self, **more: str) -> dict[str, str | int]:
        config: dict[str, str | int] = {
            "bootstrap.servers": self.mutual,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trusted.certificate),
            "socket.timeout.ms": 60_000,
        }
        return {**config, **{name.replace("_", "."): value for name, value in more.items()}}


def _listeners(sasl: int, mutual: int, trusted: Authority, broker_pem: Path) -> str:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    lines = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": f'{plain} user_tiering="{PASSWORD}";',
        "listener.name.secure.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.secure.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": broker_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted.certificate,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _with_listeners(cluster: KafkaCluster, ports: tuple[int, int], more: str) -> None:
    """The broker comes back with two listeners more."""
    added = f",SECURE://127.0.0.1:{ports[0]},MUTUAL://127.0.0.1:{ports[1]}"
    lines = cluster.broker.configuration.read_text().splitlines()
    changed = [
        line + added if line.startswith(("listeners=", "advertised.listeners=")) else line
        for line in lines
        if not line.startswith("listener.security.protocol.map=")
    ]
    cluster.broker.configuration.write_text("\n".join(changed) + "\n" + more)
    cluster.broker.restart()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    require_kafka()
    directory = tmp_path_factory.mktemp("secured")
    trusted, stranger = Authority(directory / "trusted", "trusted"), Authority(directory / "stranger", "stranger")
    broker_pem = trusted.sign("broker").both
    sasl, mutual = free_ports(2)
    with kafka_cluster(directory / "kafka") as cluster:
        _with_listeners(cluster, (sasl, mutual), _listeners(sasl, mutual, trusted, broker_pem))
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = UserScramCredentialUpsertion("tiering", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for done in cluster.admin.alter_user_scram_credentials([user]).values():
                done.result(WAIT_SECONDS)
        yield Secured(cluster, f"127.0.0.1:{sasl}", f"127.0.0.1:{mutual}", trusted, stranger)


def _refusal(config: Mapping[str, str | int], kind: type[BrokersError]) -> str:
    with open_brokers(config) as brokers, pytest.raises(kind) as caught:
        brokers.cluster_id()
    text = f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert not [secret for secret in (PASSWORD, WRONG, KEY_PASSWORD) if secret in text]
    assert str(config["bootstrap.servers"]) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password_is_let_in(secured: Secured, mechanism: str) -> None:
    with open_brokers(secured.config(mechanism)) as brokers:
        wait_until(lambda: brokers.cluster_id() == secured.cluster.cluster_id, "the user is known to the broker")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_told_with_user_and_mechanism(secured: Secured, mechanism: str) -> None:
    message = _refusal(secured.config(mechanism, sasl_password=WRONG), BrokersLoginError)
    assert f"user tiering by {mechanism}: login failed (Authentication failed" in message


def test_a_mechanism_that_is_not_enabled_is_told_with_those_that_are(secured: Secured) -> None:
    message = _refusal(secured.config("GSSAPI"), BrokersLoginError)
    assert "SASL mechanism not enabled there" in message
    assert "PLAIN" in message


def test_a_broker_that_a_stranger_signed_is_refused(secured: Secured) -> None:
    message = _refusal(secured.config(ssl_ca_location=str(secured.stranger.certificate)), BrokersLoginError)
    assert "its certificate is refused" in message


def test_a_certificate_of_another_name_is_refused(secured: Secured) -> None:
    message = _refusal(
        secured.config(bootstrap_servers=secured.sasl.replace("127.0.0.1", "localhost")), BrokersLoginError
    )
    assert "its certificate is refused: Hostname mismatch" in message


def test_a_client_without_tls_is_told_which_protocol_it_spoke(secured: Secured) -> None:
    plaintext: dict[str, str | int] = {"bootstrap.servers": secured.sasl, "socket.timeout.ms": 60_000}
    assert "a listener of another protocol than PLAINTEXT" in _refusal(plaintext, BrokersError)
    tls = secured.config(bootstrap_servers=secured.cluster.bootstrap)
    assert "does its listener use SASL_SSL?" in _refusal(tls, BrokersError)


def test_a_broker_that_demands_a_certificate_gets_one(secured: Secured) -> None:
    ours = secured.trusted.sign("client", key_password=KEY_PASSWORD)
    files = {"ssl_certificate_location": str(ours.certificate), "ssl_key_location": str(ours.key)}
    with open_brokers(secured.mutual_config(**files, ssl_key_password=KEY_PASSWORD)) as brokers:
        assert brokers.cluster_id() == secured.cluster.cluster_id
    message = _refusal(secured.mutual_config(), BrokersError)
    assert "TLS failed" in message or "closed the connection" in message
    stranger = secured.stranger.sign("client")
    files = {"ssl_certificate_location": str(stranger.certificate), "ssl_key_location": str(stranger.key)}
    _refusal(secured.mutual_config(**files), BrokersError)


def test_a_key_that_its_password_does_not_open_is_named(secured: Secured) -> None:
    ours = secured.trusted.sign("locked", key_password=KEY_PASSWORD)
    files = {"ssl_certificate_location": str(ours.certificate), "ssl_key_location": str(ours.key)}
    for password in ({}, {"ssl_key_password": WRONG}):
        with open_brokers(secured.mutual_config(**files, **password)) as brokers:
            with pytest.raises(BrokersLoginError, match=r"ssl\.key\.password does not decrypt the key") as caught:
                brokers.cluster_id()
            assert WRONG not in str(caught.value)


def test_what_the_user_may_not_see_is_said_and_what_it_may_is_answered(secured: Secured) -> None:
    topic_id = Uuid.parse(secured.cluster.create_topic("secret"))
    partition = TopicIdPartition(topic_id, 0, "secret")

    def forbidden(ask: Callable[[KafkaBrokers], object]) -> bool:
        with open_brokers(secured.config()) as brokers, pytest.raises(BrokersForbiddenError, match="not authorised"):
            ask(brokers)
        return True

    with open_brokers(secured.config()) as brokers:
        assert brokers.topics() == {}
        assert isinstance(brokers.partition_offsets([partition]).refused[partition], BrokersForbiddenError)
    assert forbidden(lambda brokers: brokers.topics(["secret"]))
    assert forbidden(lambda brokers: brokers.open_transactions(partition))
    assert forbidden(lambda brokers: brokers.topic_configs("secret"))
    assert forbidden(lambda brokers: brokers.alter_topic_configs("secret", {"retention.bytes": "1"}))
    assert forbidden(lambda brokers: brokers.broker_configs(1))
    assert forbidden(lambda brokers: brokers.free_bytes(1))
    assert forbidden(lambda brokers: brokers.log_sizes({partition: 1}))
    assert forbidden(lambda brokers: brokers.alter_broker_configs(None, {"remote.log.reader.threads": "11"}))
    granted = [
        AclBinding(
            ResourceType.TOPIC, "secret", ResourcePatternType.LITERAL, "User:tiering", "*", operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ)
    ]  # fmt: skip
    for done in secured.cluster.admin.create_acls(granted).values():
        done.result(WAIT_SECONDS)
    with open_brokers(secured.config()) as brokers:
        wait_until(lambda: "secret" in brokers.topics(), "the rights are known to the broker")
        assert brokers.topic(topic_id) == brokers.topics(["secret"])["secret"]
        assert brokers.partition_offsets([partition]).of(partition).high_watermark == 0
        assert brokers.open_transactions(partition) == []


def _acl(topic: str, operation: AclOperation) -> AclBinding:
    pattern, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, topic, pattern, "User:tiering", "*", operation, allow)


def _grant(secured: Secured, topic: str, *operations: AclOperation) -> None:
    """Exactly these rights."""
    admin = secured.cluster.admin
    anyone: Any = None  # Of every principal and host; the stubs do not know that.
    literal, all_operations = ResourcePatternType.LITERAL, AclOperation.ANY
    of_topic = AclBindingFilter(
        ResourceType.TOPIC, topic, literal, anyone, anyone, all_operations, AclPermissionType.ANY
    )
    for deleted in admin.delete_acls([of_topic]).values():
        deleted.result(WAIT_SECONDS)
    for created in (
        admin.create_acls([_acl(topic, operation) for operation in operations]).values() if operations else ()
    ):
        created.result(WAIT_SECONDS)


def test_leaders_are_read_with_the_least_rights_and_each_missing_one_is_named(secured: Secured, tmp_path: Path) -> None:
    topic = "least"
    secured.cluster.create_topic(topic, segment_bytes=None, config={"segment.bytes": str(1 << 20)})
    Writer(secured.cluster.bootstrap, "lz4").send(topic, [0], 9, value_bytes=600_000)
    config = secured.config("SCRAM-SHA-512")
    environ = {
        "HOME": str(tmp_path),
        "TIERING_CLUSTER__BOOTSTRAP_SERVERS": secured.sasl,
        "TIERING_CLUSTER__SECURITY_PROTOCOL": "SASL_SSL",
        "TIERING_CLUSTER__SASL_MECHANISM": "SCRAM-SHA-512",
        "TIERING_CLUSTER__SASL_USERNAME": "tiering",
        "TIERING_CLUSTER__SASL_PASSWORD": PASSWORD,
        "TIERING_CLUSTER__SSL_CA_LOCATION": str(config["ssl.ca.location"]),
        "TIERING_LEADERS__SETTLE_MS": "0",
        "TIERING_LEADERS__SPOOL_DIRECTORY": str(tmp_path),
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'metadata.sqlite'}",
        "TIERING_REMOTE_STORAGE__URL": (tmp_path / "store").as_uri(),
        "TIERING_TOPICS__INCLUDE": topic,
    }
    sizes = "sizes of logs need Describe on the cluster; copies do not"
    read, configs, describe = AclOperation.READ, AclOperation.DESCRIBE_CONFIGS, AclOperation.DESCRIBE

    def missing() -> list[str]:
        with open_app(load_settings(environ=environ)) as app:
            adapters = app.adapters
            found = survey(app.settings, adapters.brokers, adapters.leader_logs, adapters.unguarded_storage)
            return [sentence for sentence in found.missing if not sentence.endswith(sizes)]

    for granted, named in (
        ((), f"there is no topic {topic}, or this user lacks the ACL that allows Describe on it"),
        ((describe, configs), f"the ACL that allows Read on topic {topic} is missing"),
        ((describe, read), f"allow DescribeConfigs on topic {topic}"),
    ):
        _grant(secured, topic, *granted)
        wait_until(lambda named=named: any(named in sentence for sentence in missing()), named)  # type: ignore[misc]
    _grant(secured, topic, describe, configs, read)
    wait_until(lambda: missing() == [], "nothing is missing")
    with open_app(load_settings(environ=environ)) as app:
        app.set_up.migrate()
        planned = app.copying.plan("run")
        assert planned.errors == ()
        assert planned.segments >= 2
        assert app.copying.run_batch("run", "run.0").failed == ()
        copied = app.adapters.stores.metadata.partitions()
        assert [partition.topic for partition in copied] == [topic]
    _grant(secured, topic, describe, configs)
    Writer(secured.cluster.bootstrap, "lz4").send(topic, [0], 1, value_bytes=400)
    with open_app(load_settings(environ=environ)) as app:
        wait_until(lambda: bool(app.copying.plan("again", dry_run=True).errors), "the right is gone")
        (error,) = app.copying.plan("again", dry_run=True).errors
        assert f"the ACL that allows Read on topic {topic} is missing" in error.message
        assert PASSWORD not in error.message


def test_a_broker_that_is_stopped_is_worth_another_try(secured: Secured) -> None:
    (unused,) = free_ports(1)
    message = _refusal(secured.config(bootstrap_servers=f"127.0.0.1:{unused}"), BrokersUnavailableError)
    assert "connection refused" in message
