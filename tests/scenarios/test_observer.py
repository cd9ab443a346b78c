"""A broker tiers by itself, and the platform looks: its records, its objects, and what is wrong with them."""

from collections import defaultdict
from pathlib import Path

import pytest

from include.tiering.configs.config_store import TopicRetention
from include.tiering.configs.pools import READER_POOL
from include.tiering.copying.finish_abandoned import abandoned_copies_of
from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import MetadataTopicUnavailableError
from include.tiering.expiration.plan import ExpirationPlanner
from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import update_record
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.model.broker_cache import BROKER_COUNTED_STATES
from include.tiering.model.ownership import TopicOwner
from include.tiering.operations.readiness import NotReady
from include.tiering.segments.ingestion_contract import MetadataTopicIdentity
from tests.doubles.kafkas_remote_store import ABANDONED
from tests.doubles.segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, partition_of, planned, update_of
from tests.doubles.tiered_topic import replayed_caches
from tests.doubles.tiny_deployment import ObservedCluster

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
    assert "the topic's owner is broker" in refused.stderr
    removed = observed.document("audit", "--delete-orphans", "--approve", code=1)
    assert removed["findings"]
    assert {path: path.stat().st_size for path in observed.store.rglob("*") if path.is_file()} == before


def test_what_a_broker_left_is_named_once_everything_behind_it_was_read_and_stays(tmp_path: Path):
    cluster = ObservedCluster(tmp_path)
    known = next(log for log in cluster.store.glob("kafka-tiered-storage/tier-a-0-*/*.log"))
    orphan = known.with_name(f"{known.name[:21]}{partition_of().topic_id}.log")
    orphan.write_bytes(known.read_bytes())
    cluster.document("ingest")
    document = cluster.document("audit", "--delete-orphans", "--approve", code=1)
    (found,) = (one for one in document["findings"] if one["kind"] != "abandoned-copy")
    assert (found["kind"], found["bytes"]) == ("foreign-object", known.stat().st_size)
    assert found["key"].endswith(orphan.name)
    assert "brokers have no record of its segment" in found["message"]
    assert orphan.exists()


class TestBehind:
    """The broker goes on, and the platform has not read it yet."""

    @pytest.fixture
    def behind(self, tmp_path: Path) -> ObservedCluster:
        """Everything was read; then the broker deleted a segment of tier-a-0, objects first for whoever looks now."""
        cluster = ObservedCluster(tmp_path)
        cluster.document("ingest")
        with cluster.opened() as app:
            tier_a = next(one for one in app.adapters.stores.metadata.partitions() if str(one) == "tier-a-0")
            segment = next(
                row.metadata for row in app.adapters.stores.metadata.list_segments(tier_a) if row.metadata.is_finished
            )
            number = metadata_partition_of(tier_a, cluster.topic.partition_count())
        for state in (DELETE_STARTED, DELETE_FINISHED):
            cluster.topic.append(number, encode(update_record(update_of(segment, state))))
        for path in cluster.store.rglob(f"*{segment.remote_log_segment_id.id}*"):
            path.unlink()
        return cluster

    def test_an_audit_reads_what_the_broker_wrote_before_it_believes_that_an_object_is_lost(
        self, behind: ObservedCluster
    ):
        document = behind.document("audit", code=1)
        assert [one["kind"] for one in document["findings"]] == ["abandoned-copy"]

    def test_an_audit_that_cannot_read_it_believes_nothing_of_the_kind(self, behind: ObservedCluster):
        def away(_call: str) -> None:
            raise MetadataTopicUnavailableError("no answer")

        behind.topic.fault = away
        document = behind.document("audit", code=1)
        assert [one["kind"] for one in document["findings"]] == ["abandoned-copy"]
        assert document["passed_over"]["unread"] > 0

    def test_what_is_known_to_be_unread_is_left_out_until_it_is_read(self, behind: ObservedCluster):
        with behind.opened() as app:
            topic = app.adapters.metadata_topic_reader
            app.adapters.stores.ingestion.record_bounds(
                MetadataTopicIdentity(topic.topic_id(), topic.partition_count()), app.ingestion.topic_bounds()
            )
            unread = {str(one) for one in app.adapters.stores.ingestion.unread()}
            waiting = {
                str(one.topic_id_partition): one.reason for one in app.operations.ready(pool=READER_POOL).waiting
            }
            assert not any(app.adapters.stores.metadata.is_ready(one) for one in app.adapters.stores.ingestion.unread())
        assert "tier-a-0" in unread
        assert waiting == dict.fromkeys(unread, NotReady.UNREAD)
        sizes = behind.document("sizes")
        assert {f"{one['topic']}-{one['partition']}" for one in sizes["unread"]} == unread
        assert not unread & {f"{one['topic']}-{one['partition']}" for one in sizes["partitions"]}
        planned = behind.document("verify", "--all", "--dry-run")
        assert planned["segments"] == sum(one["segments"] for one in sizes["partitions"])
        behind.document("ingest")
        sizes = behind.document("sizes")
        assert "unread" not in sizes
        assert unread <= {f"{one['topic']}-{one['partition']}" for one in sizes["partitions"]}


def test_a_lagging_topic_of_a_broker_holds_up_no_copy_of_ours(tmp_path: Path):
    cluster = ObservedCluster(tmp_path)
    cluster.document("ingest")
    with cluster.opened() as app:
        app.ingestion.read_again(author="test")
        readiness = app.operations.ready(scope=RunScope(("*",)))
        reasons = {str(one.topic_id_partition): one.reason for one in readiness.partitions}
    assert reasons["tier-a-0"] is NotReady.NOT_OURS
    assert reasons["local-only-0"] is None


def test_a_topic_that_is_ours_again_keeps_what_the_broker_began(tmp_path: Path):
    """Neither a copy that cleans up nor an expiration takes it for its own."""
    cluster = ObservedCluster(tmp_path)
    cluster.document("ingest")
    stored = sorted(cluster.store.rglob("*"))
    with cluster.opened() as app:
        tier_a = next(one for one in app.adapters.stores.metadata.partitions() if str(one) == "tier-a-0")
        app.adapters.stores.registry.set_owner(
            tier_a.topic_id, tier_a.topic, TopicOwner.PLATFORM, expected=TopicOwner.BROKER, author="test"
        )
        app.adapters.stores.work.save_plan("run", [planned(tier_a)])
        lease = app.adapters.stores.work.claim("run", "batch", lease_ms=3_600_000)
        assert lease is not None
        assert abandoned_copies_of(app.adapters.stores.metadata, tier_a) == []
        app.copying.abandoned_copies().abandon_empty(lease.fence)
        planner = ExpirationPlanner(
            app.adapters.stores.metadata,
            app.adapters.stores.registry,
            app.adapters.stores.work,
            {tier_a.topic: TopicRetention(1, 1)},
            0,
        )
        assert planner.plan("expire", [tier_a], None, now_ms=app.adapters.stores.deletions.now_ms()).expirations == ()
    assert sorted(cluster.store.rglob("*")) == stored
