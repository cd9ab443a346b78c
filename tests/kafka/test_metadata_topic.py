"""Publication to a real metadata topic: outages and kills."""

from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import MetadataTopicUnavailableError
from include.tiering.kafka.metadata_topic.kafka import KafkaMetadataTopic
from include.tiering.metadata_sync.publish import PublishStep
from tests.contract.metadata_topic_contract import values_of
from tests.doubles.copy_process import worker_template
from tests.doubles.kafka_lab.cluster import client_configuration, kafka_cluster
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.publication_world import PublicationWorld, orders
from tests.doubles.publish_worker import IN_FLIGHT
from tests.doubles.publisher_kills import PARTITION, RANGES, Kills
from tests.doubles.segments import delete

# The metadata topic while its broker dies and comes back.

pytestmark = pytest.mark.kafka


def test_a_broker_that_stops_is_told_and_found_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_kafka()
    with kafka_cluster(tmp_path_factory.mktemp("kafka")) as cluster:
        cluster.create_topic("metadata", partitions=1)
        with KafkaMetadataTopic(client_configuration(cluster.bootstrap), topic="metadata", timeout_ms=3_000) as topic:
            assert topic.append(0, b"a") == 0
            assert values_of(topic, 0, 0, 1) == [(0, b"a")]
            cluster.broker.kill()
            with pytest.raises(MetadataTopicUnavailableError):
                topic.append(0, b"lost")
            with pytest.raises(MetadataTopicUnavailableError):
                topic.offsets(0)
            with pytest.raises(MetadataTopicUnavailableError):
                topic.partition_count()
            cluster.broker.start()
        with KafkaMetadataTopic(client_configuration(cluster.bootstrap), topic="metadata", timeout_ms=60_000) as topic:
            assert topic.append(0, b"b") == 1
            assert values_of(topic, 0, 0, 2) == [(0, b"a"), (1, b"b")]


# kill -9 of the publisher at each of its steps, 54 times in all, on a real broker's metadata topic; some die while
# their request is on its way. tests/chaos has the same on a topic in files.

SETTLE_MS = 10_000


def test_killed_at_every_step_in_turn_it_leaves_a_valid_prefix_and_comes_to_its_end(tmp_path: Path) -> None:
    require_kafka()
    engine = open_engine(f"sqlite:///{tmp_path}/metadata.sqlite")
    upgrade(engine)
    world = PublicationWorld(engine)
    segments, fence = world.copied(orders(PARTITION), RANGES)
    with (
        kafka_cluster(tmp_path / "kafka", remote_dir=tmp_path / "remote") as cluster,
        worker_template(),
        KafkaMetadataTopic(client_configuration(cluster.bootstrap)) as topic,
    ):
        kills = Kills(world, topic, cluster.bootstrap, SETTLE_MS)
        _, *later = PublishStep
        died = kills.while_publishing([IN_FLIGHT, *later])
        for segment in segments:
            delete(world.metadata, segment, fence)
        assert died + kills.while_telling_deletions([IN_FLIGHT, *PublishStep]) == 54
        world.publisher(topic, SystemClock()).confirm(orders(PARTITION))
    engine.dispose()
