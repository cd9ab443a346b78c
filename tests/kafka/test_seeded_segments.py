"""Brokers of three releases serve segments that this platform copied: plain and read_committed consumers get every
record, from offset 0, after the local ones have gone."""

from collections.abc import Iterator

import pytest

from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.artifacts import VERSIONS
from tests.doubles.kafka_lab.cluster import kafka_cluster, wait_until
from tests.doubles.kafka_lab.consume import both_digests
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.seeded_topics import seed, switch_on

PARTITIONS = (0, 1, 2)


@pytest.fixture(scope="module", params=VERSIONS)
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDeployment]:
    require_kafka(request.param)
    directory = tmp_path_factory.mktemp("kafka")
    with kafka_cluster(directory / "kafka", version=request.param, remote_dir=directory / "remote") as cluster:
        yield broker_deployment(cluster, directory / "platform")


def test_every_record_is_read_from_our_objects(deployment: BrokerDeployment) -> None:
    cluster, topic = deployment.cluster, "mixed"
    cluster.create_topic(topic, partitions=len(PARTITIONS))
    for round_ in range(3):  # leader epochs 0, 2, 4
        mixed_records(cluster.bootstrap, topic, PARTITIONS, seed=round_)
        cluster.restart()
    mixed_records(cluster.bootstrap, topic, PARTITIONS, seed=3, count=8)
    before = {partition: both_digests(cluster.bootstrap, topic, partition) for partition in PARTITIONS}
    assert all(plain.records > committed.records for plain, committed in before.values())

    seeded = seed(deployment, topic)
    ours = {partition: [s.segment_id for s in seeded if s.partition == partition] for partition in PARTITIONS}
    assert all(len(ids) >= 4 for ids in ours.values())
    switch_on(cluster, topic, PARTITIONS)

    for partition in PARTITIONS:
        assert both_digests(cluster.bootstrap, topic, partition) == before[partition]
        assert cluster.earliest(topic, partition) == 0
        stored = cluster.remote_segments(topic, partition)
        assert len({base for base, _ in stored}) == len(stored), "an offset that we had copied was copied again"
        assert [id_ for _, id_ in stored][: len(ours[partition])] == ours[partition]
    assert cluster.errors() == []

    cluster.restart()
    for partition in PARTITIONS:
        assert both_digests(cluster.bootstrap, topic, partition) == before[partition]
    # A broker that stops while it copies says so as an error; none may be about what is ours.
    assert not [line for line in cluster.errors() for ids in ours.values() for id_ in ids if id_ in line]


def test_the_broker_expires_our_objects_at_the_end_of_retention(deployment: BrokerDeployment) -> None:
    cluster, topic = deployment.cluster, "expires"
    cluster.create_topic(topic)
    Writer(cluster.bootstrap, "lz4").send(topic, [0], 1_500, value_bytes=400)
    seeded = seed(deployment, topic, at_least=4)
    assert len(seeded) >= 4
    switch_on(cluster, topic, [0])
    assert cluster.earliest(topic, 0) == 0
    last = seeded[-1]
    kept = sum(segment.size_bytes for segment in seeded[-2:])
    cluster.alter_topic(topic, retention_bytes=str(kept + 70_000))
    wait_until(lambda: cluster.earliest(topic, 0) > seeded[0].end_offset, "the log start was raised")
    gone = [segment for segment in seeded if segment.end_offset < cluster.earliest(topic, 0)]
    wait_until(
        lambda: not {segment.segment_id for segment in gone} & {id_ for _, id_ in cluster.remote_segments(topic, 0)},
        "objects of expired segments were deleted",
    )
    assert last.segment_id in {id_ for _, id_ in cluster.remote_segments(topic, 0)}
    names = {path.name for path in cluster.stored.glob(f"{topic}-0-*/*")}
    assert not [name for name in names for segment in gone if segment.segment_id in name]
    after, _ = both_digests(cluster.bootstrap, topic, 0, start=cluster.earliest(topic, 0))
    assert (after.first_offset, after.last_offset) == (cluster.earliest(topic, 0), 1_499)
