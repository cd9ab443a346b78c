"""Each metric of docs/metrics.md gets a sample from real runs, through the database, in the text of the endpoint.

Deployments run one after the other: an archive of real log dirs, brokers that tier by themselves, and topics that are
being handed over. None of the processes that did the work lives any more when the endpoint is asked.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from include.tiering.app import App
from include.tiering.app.metrics import METRICS
from include.tiering.app.recovery import record_drill
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.copying.metrics import LEADER_THROTTLED_SECONDS
from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.quotas.topic_quotas import TOPIC_QUOTAS_ENABLE
from include.tiering.reading.fetch import PartitionFetch
from include.tiering.recovery.drill import DrillReport, DrillStep, RecoveryNeeds
from tests.doubles.archive import Archive
from tests.doubles.manual_clock import ManualClock
from tests.doubles.orphans import plant_orphan, remove_all_orphans
from tests.doubles.scrapes import Samples, get, samples_of, serving
from tests.doubles.segments import CLUSTER_ID
from tests.doubles.source_tree import ROOT
from tests.doubles.tiny_deployment import ObservedCluster
from tests.unit.app.test_handover import _FIRST, Deployment

ORDERS: Final = ConfigEntity(EntityType.TOPICS, "orders")
NAMED: Final = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def scraped(opened: Callable[[], AbstractContextManager[App]], began_ms: int) -> Samples:
    """What the endpoint of a new process shows in the minutes from `began_ms` until now; the highest of each sample."""
    with opened() as app:
        now_ms, found = app.adapters.clock.now_ms(), Samples()
        app.adapters.clock = clock = ManualClock(now_ms=began_ms // 60_000 * 60_000 + 15_001)
        with serving(app.operations.monitoring.values) as server:
            while clock.now_ms() < now_ms + 120_000:
                clock.advance(60)
                status, text = get(server)
                assert status == 200, text
                _raise(found, samples_of(text))
    return found


def _raise(found: Samples, others: Samples) -> None:
    found |= {key: max(value, found.get(key, value)) for key, value in others.items()}


def archived(directory: Path) -> Samples:
    """Copy, verify, size, read, audit and expire under quotas; one copy, one verification and one deletion fail."""
    archive = Archive.of(directory)
    settings = 'prices.gib_month = "0.02"\ntiering.superseded.hold.ms = 0\n'
    archive.config.write_text(settings + archive.config.read_text())
    with archive.open() as app:
        began_ms = app.adapters.clock.now_ms()
        limits = {
            TOPIC_QUOTAS_ENABLE: "true",
            "tiering.copy.total.max.bytes.per.second": "400000",
            "tiering.delete.max.requests.per.second": "50",
        }
        app.adapters.stores.configs.alter(ALL_BROKERS, limits, author="test")
    for replica in archive.brokers.rglob("orders-1/00000000000000000536.log"):
        _damage(replica)
    archive.copy()
    with archive.open() as app:
        (first,) = (partition for partition in app.adapters.stores.metadata.partitions() if partition.partition == 0)
        logs = sorted((archive.directory / "store").rglob("orders-*/0/*.log"))
        _damage(logs[0])
        app.verification.verify_run()
        app.verification.publish_verdicts()
        app.sizes.report()
    found = scraped(archive.open, began_ms)
    archive.copy()
    with archive.open() as app:
        app.verification.verify_run()
        app.verification.publish_verdicts()
        app.sizes.report()
        app.sizes.publish_recount(milliseconds=5.0, differences=0)
        limits = {"tiering.fetch.total.max.bytes.per.second": "60000"}
        app.adapters.stores.configs.alter(ALL_BROKERS, limits, author="test")
    with archive.open() as app:
        _read(app, first, directory)
        plant_orphan(archive.directory / "store")
        assert len(remove_all_orphans(app, "audit").items) == 2
    # The copy that replaced the damaged one is lost, so the damaged one is kept; one log cannot be deleted.
    (again,) = set((archive.directory / "store").rglob("orders-*/0/*.log")) - set(logs)
    _damage(again)
    with archive.open() as app:
        request = app.restoring.requested("orders", partitions=(0,))
        assert len(app.restoring.run(request, directory / "restored").failed) == 1
    logs[1].unlink()
    (logs[1] / "in the way").mkdir(parents=True)
    archive.set(retention_bytes=1)
    archive.expire()
    archive.raise_broker_log_start(1, 716)
    with archive.open() as app:
        # What a drill on a real broker records: tests/integration/test_recovery_drill.py.
        needs = RecoveryNeeds(topic_bytes=1, store_bytes=1, disk_bytes=1, work_seconds=1.0)
        steps = ((DrillStep.REBUILD, 1.5),)
        record_drill(app, DrillReport("orders", "4.3.1", steps, (), ("a segment is lost",), needs), "test")
        # What a read of a leader does that has a client quota: tests/kafka/test_leaders_throttled.py.
        app.adapters.recorder.add(LEADER_THROTTLED_SECONDS, 1.0, "orders")
        app.copying.plan("the broker has deleted what was not copied")
        app.sizes.report()
    _raise(found, scraped(archive.open, began_ms))
    return found


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def _read(app: App, partition: TopicIdPartition, directory: Path) -> None:
    assert list(app.reading.fetch_partition(partition, directory / "read"))
    fetch = PartitionFetch(partition, 282, 30_000)
    assert any(answer.throttle_ms for answer in app.reading.fetch_records([fetch] * 8, "reports"))


def observed(directory: Path) -> Samples:
    """Brokers tier by themselves, and their metadata are read."""
    cluster = ObservedCluster(directory)
    with cluster.opened() as app:
        began_ms = app.adapters.clock.now_ms()
        app.ingestion.run()
    return scraped(cluster.opened, began_ms)


def handed_over(directory: Path) -> Samples:
    """A topic is published, and a handover of it is under way."""
    deployment = Deployment(directory)
    deployment.run("orders")
    handovers = SqlHandoverStore(deployment.engine, CLUSTER_ID)
    handovers.begin(Uuid(bytes(16)), _FIRST.topic_id, "orders", LocalRetention(), author="ada")
    with deployment.open() as app:
        app.handover.forgotten()
    samples = scraped(deployment.open, deployment.began_ms)
    deployment.engine.dispose()
    return samples


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    found = Samples()
    for work in (archived, observed, handed_over):
        _raise(found, work(tmp_path_factory.mktemp(work.__name__)))
    return found


def test_every_metric_of_the_page_has_a_sample_and_no_other_is_shown(samples: Samples) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text().partition("## The same in Kafka")[0]
    named = set(NAMED.findall(page))
    assert named == {metric.shown_name for metric in METRICS}
    assert {name for name, _ in samples} == named


ZERO: Final = {
    "tiering_remote_log_size_differences",
    "tiering_lost_offsets",
    "tiering_remote_copy_out_of_sight_partitions",
    "tiering_log_dir_unreadable",
    "tiering_remote_delete_lag_seconds",
    "tiering_duplicate_bytes",
    "tiering_audit_refusals",
    "tiering_ingest_lag_records",
    "tiering_ingest_stopped",
    "tiering_handovers_forgotten",
}
"""Nothing of this happened in these runs."""


def test_values_are_those_of_the_runs(samples: Samples) -> None:
    assert {name for name, _ in samples} - {name for (name, _), value in samples.items() if value} <= ZERO
