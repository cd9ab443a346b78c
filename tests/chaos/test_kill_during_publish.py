"""kill -9 of the publisher at each of its steps, 54 times in all: whoever reads the topic in between finds what a
broker could be switched on with. The crash table of `metadata_sync/publish.py` is the specification.

The topic is kept in files, so it outlives its writers as brokers do; tests/kafka has the same against a broker.
"""

from pathlib import Path

import pytest

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.metadata_sync.publish import PublishStep
from tests.doubles.file_metadata_topic import FileMetadataTopic
from tests.doubles.publication_world import PublicationWorld, orders
from tests.doubles.publisher_kills import PARTITION, RANGES, Kills
from tests.doubles.segments import delete

pytestmark = pytest.mark.chaos


def test_killed_at_every_step_in_turn_it_leaves_a_valid_prefix_and_comes_to_its_end(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/metadata.sqlite")
    upgrade(engine)
    world = PublicationWorld(engine)
    segments, fence = world.copied(orders(PARTITION), RANGES)
    place = tmp_path / "topic"
    place.mkdir()
    kills = Kills(world, FileMetadataTopic(place), str(place))
    _, *later = PublishStep
    died = kills.while_publishing(later)
    for segment in segments:
        delete(world.metadata, segment, fence)
    assert died + kills.while_telling_deletions(list(PublishStep)) == 54
    engine.dispose()
