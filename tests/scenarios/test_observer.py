"""A broker tiers by itself, and the platform looks: its records, its objects, and what is wrong with them."""

from collections import defaultdict

import pytest

from include.tiering.model.broker_cache import BROKER_COUNTED_STATES
from tests.doubles.kafkas_remote_store import ABANDONED
from tests.doubles.observed_cluster import ObservedCluster
from tests.doubles.segments import FINISHED
from tests.doubles.tiered_topic import replayed_caches

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> ObservedCluster:
    """Read to its end once. Verdicts and findings may be added, nothing else."""
    cluster = ObservedCluster(tmp_path_factory.mktemp("observed"))
    document = cluster.document("ingest", "--sizes")
    assert (document["records"], document["lag_records"], document["findings"]) == (164, 0, [])
    return cluster


def test_sizes_are_those_of_the_broker(observed: ObservedCluster):
    found = {
        (one["topic"], one["partition"]): (one["bytes"], one["all_states_bytes"], one["segments"])
        for one in observed.document("ingest", "--sizes")["remote_log_sizes"]
    }
    expected = {}
    for partition, cache in replayed_caches(observed.topic).items():
        known = cache.list_segments()
        counted = [one.segment_size_bytes for one in known if one.state in BROKER_COUNTED_STATES]
        every = [one.segment_size_bytes for one in known]
        if known:
            expected[partition.topic, partition.partition] = (sum(counted), sum(every), len(known))
    assert found == expected
    assert any(size != every for size, every, _ in found.values()), "the abandoned copy counts in one rule alone"


def test_finished_sizes_are_the_objects_that_are_there(observed: ObservedCluster):
    stored: dict[tuple[str, int], int] = defaultdict(int)
    for log in observed.store.glob("kafka-tiered-storage/*/*.log"):
        if ABANDONED not in log.name:
            topic, partition = log.parent.name[:-23].rsplit("-", 1)
            stored[topic, int(partition)] += log.stat().st_size
    sizes = observed.document("sizes")["partitions"]
    assert {(one["topic"], one["partition"]): one["bytes"] for one in sizes} == dict(stored)


def test_every_segment_of_the_broker_passes(observed: ObservedCluster):
    document = observed.document("verify", "--all", "--depth", "deep")
    finished = sum(
        one.state is FINISHED for cache in replayed_caches(observed.topic).values() for one in cache.list_segments()
    )
    assert (document["segments"], document["failed"]) == (finished, [])


def test_the_audit_finds_the_abandoned_copy_and_nothing_else(observed: ObservedCluster):
    document = observed.document("audit", code=1)
    assert [(one["kind"], one["segment_id"]) for one in document["findings"]] == [("abandoned-copy", ABANDONED)]


def test_nothing_of_a_brokers_topic_is_copied_expired_truncated_or_removed(observed: ObservedCluster):
    """Whatever is asked for."""
    before = {path: path.stat().st_size for path in observed.store.rglob("*") if path.is_file()}
    copied = observed.document("copy", "--topic", "tier*")
    assert copied["copied"] == []
    for topic in ("tier-a", "tier_exp", "tier.tx", "tier-cut"):
        configs = ("--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config")
        assert observed.run("configs", *configs, "retention.ms=1,retention.bytes=1").exit_code == 0
    expired = observed.document("expire", "--approve")
    assert (expired["decisions"], expired["log_start_offsets"]) == ([], [])
    refused = observed.run("delete-records", "tier-a", "--partition", "0", "--before-offset", "400", "--approve")
    assert refused.exit_code == 2
    assert "its owner is broker" in refused.stderr
    removed = observed.document("audit", "--delete-orphans", "--approve", code=1)
    assert removed["findings"]
    assert {path: path.stat().st_size for path in observed.store.rglob("*") if path.is_file()} == before
