"""A real broker tiers by itself, and the platform observes: what it reads is what the broker knows and says."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from include.tiering.app import App
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentId, Uuid
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.kafka_cache import Known, told
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import gauge_by_topic, require_kafka
from tests.doubles.seeded_topics import seed, switch_on
from tests.doubles.segments import DELETE_FINISHED, FINISHED

TOPIC, PARTITIONS = "tiered", (0, 1)
TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1"}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDeployment]:
    """A broker with a topic of three leader epochs in its remote storage."""
    require_kafka()
    directory = tmp_path_factory.mktemp("observed")
    with kafka_cluster(directory / "kafka", remote_dir=directory / "remote", jmx=True) as cluster:
        cluster.create_topic(TOPIC, partitions=len(PARTITIONS), config=TIERED)
        for round_ in range(2):
            mixed_records(cluster.bootstrap, TOPIC, PARTITIONS, seed=round_)
            cluster.restart()
        mixed_records(cluster.bootstrap, TOPIC, PARTITIONS, seed=2)
        settle(cluster)
        yield broker_deployment(cluster, directory / "platform")


def _is_all_remote(cluster: KafkaCluster, topic: str, partition: int) -> bool:
    return len(cluster.local_segments(topic, partition)) == 1


def settle(cluster: KafkaCluster, topic: str = TOPIC) -> None:
    """Only the active segment is left on the broker's disk: everything else was copied."""
    for partition in range(len(list(cluster.broker.log_dir.glob(f"{topic}-*")))):
        wait_until(partial(_is_all_remote, cluster, topic, partition), f"{topic}-{partition} was copied")


def known_to_kafka(app: App) -> Known:
    """What Kafka's own cache makes of all that is in the topic."""
    topic = app.adapters.metadata_topic_reader
    values = []
    for number in range(topic.partition_count()):
        begin, end = topic.offsets(number)
        values += [record.value for record in topic.read(number, begin, end_offset=end)]
    return told([values])[0]


def assert_agrees(app: App) -> None:
    """States, what each leader epoch lists, and its highest offset, of every partition."""
    known = known_to_kafka(app)
    for partition in app.adapters.stores.metadata.partitions():
        ours, theirs = (
            app.adapters.stores.ingestion.broker_view(partition).cache,
            known[str(partition.topic_id), partition.partition],
        )
        assert {str(one.id): state.state.name for one, state in ours.segments.items()} == theirs.states
        listed: dict[int, list[str]] = defaultdict(list)
        for epoch, one in ours.references:
            listed[epoch].append(str(one.id))
        assert {epoch: sorted(ids) for epoch, ids in listed.items()} == {
            epoch: sorted(ids) for epoch, ids in theirs.listed.items() if ids
        }
        assert ours.highest == {epoch: offset for epoch, offset in theirs.highest.items() if offset is not None}
    assert {key for key, partition in known.items() if partition.states} <= {
        (str(one.topic_id), one.partition) for one in app.adapters.stores.metadata.partitions()
    }


def sizes_by_topic(document: Mapping[str, object]) -> dict[str, int]:
    sizes: dict[str, int] = defaultdict(int)
    for one in document["remote_log_sizes"]:  # type: ignore[attr-defined]
        sizes[one["topic"]] += one["bytes"]
    return dict(sizes)


def test_what_is_read_is_what_the_broker_knows_and_its_gauge_says(deployment: BrokerDeployment) -> None:
    document = deployment.document("ingest", "--sizes")
    assert document["records"] >= 12
    assert (document["lag_records"], document["findings"]) == (0, [])
    with deployment.library() as app:
        assert_agrees(app)
        assert {
            app.adapters.stores.registry.owner(one.topic_id) for one in app.adapters.stores.metadata.partitions()
        } == {TopicOwner.BROKER}
    sizes = sizes_by_topic(document)
    # The expiration task of each leader sets the gauge, every half second.
    wait_until(
        lambda: gauge_by_topic(deployment.cluster.broker, "RemoteLogSizeBytes").get(TOPIC) == sizes[TOPIC],
        f"the broker's RemoteLogSizeBytes is {sizes[TOPIC]}",
    )
    counted = sum(one["segments"] for one in document["remote_log_sizes"] if one["topic"] == TOPIC)
    assert gauge_by_topic(deployment.cluster.broker, "RemoteLogMetadataCount")[TOPIC] == counted


def test_its_objects_pass_every_rule_and_the_audit_finds_nothing(deployment: BrokerDeployment) -> None:
    deployment.document("ingest")
    verified = deployment.document("verify", "--all", "--depth", "deep")
    assert verified["segments"] >= 6
    assert verified["failed"] == []
    assert deployment.document("audit")["findings"] == []


def test_what_the_broker_deletes_disappears(deployment: BrokerDeployment) -> None:
    cluster, topic = deployment.cluster, "expires"
    cluster.create_topic(topic, config=TIERED)
    Writer(cluster.bootstrap, "lz4").send(topic, [0], 1_500, value_bytes=400)
    settle(cluster, topic)
    deployment.document("ingest")
    before = deployment.document("sizes")["partitions"]
    assert sum(one["segments"] for one in before if one["topic"] == topic) >= 4
    cluster.alter_topic(topic, retention_bytes="150000")
    wait_until(lambda: cluster.earliest(topic, 0) > 0, "the log start was raised")
    wait_until(lambda: 0 < len(cluster.remote_segments(topic, 0)) <= 3, "the broker deleted its oldest segments")

    def follows() -> bool:
        deployment.document("ingest")
        left = [one for one in deployment.document("sizes")["partitions"] if one["topic"] == topic]
        return [one["segments"] for one in left] == [len(cluster.remote_segments(topic, 0))]

    wait_until(follows, "the rows are what the broker has left")
    with deployment.library() as app:
        assert_agrees(app)
    assert deployment.document("audit")["findings"] == []
    assert cluster.errors() == []


def test_it_goes_on_after_restarts_and_reads_again_what_it_read(deployment: BrokerDeployment) -> None:
    cluster = deployment.cluster
    Writer(cluster.bootstrap, "zstd").send(TOPIC, PARTITIONS, 400, value_bytes=400)
    settle(cluster)
    cluster.restart()
    deployment.document("ingest")
    with deployment.library() as app:
        rows = {
            one: app.adapters.stores.metadata.list_segments(one) for one in app.adapters.stores.metadata.partitions()
        }
        assert_agrees(app)
    document = deployment.document("ingest", "--from-beginning", "--approve")
    assert document["findings"] == []
    with deployment.library() as app:
        assert {
            one: app.adapters.stores.metadata.list_segments(one) for one in app.adapters.stores.metadata.partitions()
        } == rows
        assert_agrees(app)


def test_what_we_published_comes_back_and_follows_the_broker(deployment: BrokerDeployment) -> None:
    cluster, topic = deployment.cluster, "handed"
    topic_id = Uuid.parse(cluster.create_topic(topic))
    Writer(cluster.bootstrap, "lz4").send(topic, [0], 1_500, value_bytes=400)
    seeded = seed(deployment, topic, at_least=4)
    assert len(seeded) >= 4
    document = deployment.document("ingest")
    assert document["findings"] == []
    with deployment.library() as app:
        (partition,) = (one for one in app.adapters.stores.metadata.partitions() if one.topic == topic)
        rows = app.adapters.stores.metadata.list_segments(partition)
        assert {(row.origin, row.broker_state) for row in rows} == {(SegmentOrigin.PLATFORM, FINISHED)}
        assert app.adapters.stores.registry.owner(topic_id) is TopicOwner.PLATFORM
        assert_agrees(app)

    switch_on(cluster, topic, [0])
    Writer(cluster.bootstrap, "lz4", seed=1).send(topic, [0], 600, value_bytes=400)
    settle(cluster, topic)
    deployment.document("ingest")
    with deployment.library() as app:
        assert app.adapters.stores.registry.owner(topic_id) is TopicOwner.BROKER
        assert {row.origin for row in app.adapters.stores.metadata.list_segments(partition)} == set(SegmentOrigin)
        assert_agrees(app)

    cluster.alter_topic(topic, retention_bytes="150000")
    first = RemoteLogSegmentId(partition, Uuid.parse(seeded[0].segment_id))

    def follows() -> bool:
        deployment.document("ingest")
        with deployment.library() as app:
            row = app.adapters.stores.metadata.segment(first)
            left = [
                str(one.metadata.remote_log_segment_id.id)
                for one in app.adapters.stores.metadata.list_segments(partition)
            ]
        is_deleted = row is not None and row.metadata.state is DELETE_FINISHED
        return is_deleted and sorted(left) == sorted(id_ for _, id_ in cluster.remote_segments(topic, 0))

    wait_until(follows, "our rows are what the broker has left of our objects")
    assert cluster.errors() == []
