"""Without cluster metadata the user's word counts, until it was known once."""

import pytest

from include.tiering.errors import ClusterMetadataError
from include.tiering.kafka.cluster.cluster_metadata import LostClusterMetadata
from include.tiering.model.segments import Uuid

TOPIC_ID = Uuid(bytes(range(16)))


def test_metadata_that_nobody_has_ever_read_are_unknown() -> None:
    cluster_metadata = LostClusterMetadata(lambda: False)
    cluster_metadata.refresh()
    assert (cluster_metadata.cluster_id(), cluster_metadata.topic(TOPIC_ID), cluster_metadata.topic_named("a")) == (
        None,
        None,
        None,
    )
    assert not cluster_metadata.is_removed(TOPIC_ID)


def test_metadata_that_were_read_before_are_missed_with_the_way_out() -> None:
    with pytest.raises(ClusterMetadataError, match=r"__cluster_metadata-0, which was read .* mount it again"):
        LostClusterMetadata(lambda: True).refresh()


def test_the_memory_is_asked_each_time() -> None:
    answers = iter([False, True])
    cluster_metadata = LostClusterMetadata(lambda: next(answers))
    cluster_metadata.refresh()
    with pytest.raises(ClusterMetadataError):
        cluster_metadata.refresh()
