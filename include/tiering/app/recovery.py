"""The services that bring data back, and the parts of a recovery drill, whose steps are in `recovery.drill_steps`."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from include.tiering.audit.finding import COMPLETE_COPIES
from include.tiering.audit.record import FindingState
from include.tiering.database.migrations import upgrade
from include.tiering.errors import MetadataUnavailableError, TieringError
from include.tiering.recovery.metrics import DRILL_FAILED, DRILL_SECONDS, DRILL_TIME
from include.tiering.recovery.service import RecoveryService
from include.tiering.recovery.sql_recovery import SqlMetadataRecovery
from include.tiering.restoring.service import RestoreService, stored_log

if TYPE_CHECKING:
    from include.tiering.app.app import App
    from include.tiering.broker_process.kafka_home import KafkaHome
    from include.tiering.model.segments import SeenRecord, TopicIdPartition
    from include.tiering.recovery.drill import DrillReport
    from include.tiering.recovery.drill_steps import OwnServices
    from include.tiering.restoring.copy_elsewhere import OtherStorage
    from include.tiering.restoring.plan import PartitionLog
    from include.tiering.settings import TieringSettings


def recovery_service(app: "App") -> RecoveryService:
    adapters = app.adapters
    return RecoveryService(
        upgrade_schema=lambda: upgrade(adapters.create_database()),
        has_schema=adapters.has_schema,
        unguarded=lambda: adapters.unguarded_storage,
        storage=lambda: adapters.storage,
        place=lambda: adapters.place,
        raised_by=adapters.raised_by,
        recovery_of=lambda cluster_id: SqlMetadataRecovery(adapters.engine, cluster_id),
        adoption=lambda: adapters.stores.recovery,
        metadata=lambda: adapters.stores.metadata,
        registry=lambda: adapters.stores.registry,
        work=lambda: adapters.stores.work,
        accepted=lambda: {
            each.finding.segment_id
            for each in adapters.stores.audits.findings((FindingState.ACCEPTED,))
            if each.finding.kind in COMPLETE_COPIES
        },
        log_dirs=app.log_dirs,
        ownership=app.ownership,
        clock=adapters.clock,
        random_bytes=adapters.random_bytes,
    )


def restore_service(app: "App") -> RestoreService:
    adapters = app.adapters
    return RestoreService(
        cluster_id=adapters.cluster_id,
        place=lambda: adapters.place,
        log_dirs=[each.path for each in app.settings.log_dirs],
        metadata=adapters.stores.metadata,
        storage=adapters.storage,
        quotas=adapters.quotas,
        reading=app.reading,
        effective=app.effective_configs.settings,
        recorder=adapters.recorder,
        clock=adapters.clock,
        random_bytes=adapters.random_bytes,
    )


def other_storage(config: Path, environ: Mapping[str, str]) -> "OtherStorage":
    """Return the remote storage that another settings file names, for a restore into it.

    Args:
        config: a settings file with a section `remote_storage`.
        environ: the environment. Variables for the other storage begin with `TIERING_TARGET__`, such as
            `TIERING_TARGET__REMOTE_STORAGE__SECRET_ACCESS_KEY`. Of the other variables only HOME is used, because
            those that begin with `TIERING_REMOTE_STORAGE__` are of the storage from which segments are restored.

    Raises:
        SettingError: the file cannot be used, or names no storage.
    """
    from include.tiering.remote_storage.location import access_of, layout_options, open_storage, place_of
    from include.tiering.restoring.copy_elsewhere import OtherStorage
    from include.tiering.settings.load import TARGET_PREFIX, load_settings

    theirs = [name for name in environ if name.startswith(TARGET_PREFIX)]
    own = {f"TIERING_{name.removeprefix(TARGET_PREFIX)}": environ[name] for name in theirs}
    remote = load_settings(config, environ={"HOME": environ.get("HOME", ""), **own}).remote_storage
    url = remote.required_url()
    storage = open_storage(url, access_of(remote), **layout_options(remote))
    return OtherStorage(storage, place_of(url, remote.layout, remote.key_prefix))


_PREFIX: Final = "tiering-drill-"


def drill(
    app: "App",
    topic: str,
    kafka: "KafkaHome",
    *,
    author: str,
    say: Callable[[str], None],
    keep: bool = False,
) -> "DrillReport":
    """Recover a topic from the store alone, check what was recovered and what consumers read, and record the result.

    Args:
        app: the deployment. The drill writes the event log and the metrics, and its reads count against the quotas.
        topic: name of the topic.
        kafka: the Kafka release that is started.
        author: who asked for the drill, for the event log.
        say: called with a sentence about each step.
        keep: whether to keep the temporary directory. The broker is ended in any case.

    Raises:
        SettingError: the store has no topic of this name, or several; or TMPDIR is in a log directory.
        StateConflictError: the store's layout writes no manifests, so nothing can be rebuilt from it.
        RehearsalError: there is too little space, or the throw-away broker could not be prepared.
        RemoteStorageUnavailableError: the store does not answer.
    """
    from include.tiering.app.rehearse import temporary_parent
    from include.tiering.recovery.drill_steps import Drill

    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=temporary_parent(app)))
    try:
        say(f"the drill's database and files are in {root}")
        report = Drill(
            topic,
            kafka,
            root,
            opened=lambda: _own_services(app, topic, root),
            known=lambda: _logs(app, topic),
            served=_served,
            clock=app.adapters.clock,
            say=say,
        ).report()
    except TieringError as error:
        _record_undone(app, topic, error, author)
        raise
    finally:
        if not keep:
            shutil.rmtree(root)
    record_drill(app, report, author)
    return replace(report, kept=root) if keep else report


def _record_undone(app: "App", topic: str, error: TieringError, author: str) -> None:
    """Keep why a drill of a topic could not be done, so that it is another topic's turn."""
    from include.tiering.database.event_log import EventKind

    with suppress(MetadataUnavailableError):
        if any(_logs(app, topic)):
            detail = f"could not be done: {error}"
            app.adapters.stores.events.append(EventKind.DRILL, topic, detail, author=author)


def topic_that_waits(app: "App") -> str | None:
    """Return the topic for the next drill; None if no topic has segments.

    Topics without a drill come first, the smallest one before larger ones; then the topic whose last drill is the
    longest ago. One that could not be done counts, too: a topic that is too large for the host must not keep others
    from their drills.
    """
    from include.tiering.database.event_log import EventKind

    sizes: dict[str, int] = {}
    for each in app.sizes.partition_sizes():
        sizes[each.topic_id_partition.topic] = sizes.get(each.topic_id_partition.topic, 0) + each.size_bytes
    last = {topic: app.adapters.stores.events.last(EventKind.DRILL, topic) for topic in sizes}
    waits = {topic: 0 if event is None else event.occurred_at_ms for topic, event in last.items()}
    return min(sizes, key=lambda topic: (waits[topic], sizes[topic], topic), default=None)


def record_drill(app: "App", report: "DrillReport", author: str) -> None:
    """Keep the result of a drill in the event log and in the metrics."""
    from include.tiering.database.event_log import EventKind
    from include.tiering.recovery.drill import said_of_drill

    topic, adapters = report.topic, app.adapters
    adapters.stores.events.append(EventKind.DRILL, topic, said_of_drill(report), author=author)
    adapters.recorder.set(DRILL_TIME, adapters.clock.now_ms() / 1000, topic)
    adapters.recorder.set(DRILL_FAILED, 0 if report.has_passed else 1, topic)
    adapters.recorder.set(DRILL_SECONDS, report.seconds, topic)


@contextmanager
def _own_services(app: "App", topic: str, root: Path) -> "Iterator[OwnServices]":
    """Open an app with a database of its own below `root`, under the deployment's quotas, which stay open."""
    from include.tiering.app.app import open_app
    from include.tiering.recovery.drill_steps import OwnServices

    with open_app(_settings_of(app.settings, root), quotas=app.adapters.quotas) as own:

        def raise_log_start(partition: "TopicIdPartition", offset: int) -> None:
            metadata = own.adapters.stores.metadata
            metadata.raise_log_start(partition, offset, reason="that of the deployment", author="drill")

        try:
            yield OwnServices(
                own.recovery,
                lambda: own.restoring,
                lambda: _verified(own),
                lambda: _logs(own, topic),
                raise_log_start,
            )
        finally:
            own.adapters.__dict__.pop("quotas", None)


def _verified(own: "App") -> Iterable[tuple[str, str]]:
    from include.tiering.model.segments import Depth
    from include.tiering.verification.verify_segments import verify_segments

    adapters = own.adapters
    report = verify_segments(
        adapters.stores.metadata,
        adapters.unguarded_storage,
        adapters.segment_evaluator(None),
        run_id=None,
        # A rebuilt database lacks the checksum of a log that is stored compressed or encrypted.
        depth=Depth.DEEP,
        quotas=adapters.quotas,
        clock=adapters.clock,
        # The deployment may plan during the drill, which changes the marker. The drill writes nothing into the store.
        require_ours=lambda: None,
        # The database is thrown away, and each segment without objects is to be named.
        limits=own.verification.loss_limits(confirm=lambda _: True),
        at_once=own.settings.read.max_segments,
    )
    return [(each.segment_id, f"segment {each.segment_id}: {each.rule}: {each.message}") for each in report.failed]


def _logs(app: "App", topic: str) -> "Iterator[tuple[TopicIdPartition, PartitionLog]]":
    """Yield the topic's partitions as the app's database has them."""
    metadata = app.adapters.stores.metadata
    for partition in metadata.partitions():
        if partition.topic == topic:
            yield partition, stored_log(metadata, partition)


def _served(
    bootstrap: str, partition: "TopicIdPartition", first_offset: int, last_offset: int, committed: bool
) -> "Iterable[SeenRecord]":
    from include.tiering.kafka.cluster.kafka_records import Isolation, KafkaServedRecords

    isolation = Isolation.COMMITTED if committed else Isolation.UNCOMMITTED
    served = KafkaServedRecords({"bootstrap.servers": bootstrap}, isolation=isolation)
    return served.read(partition, first_offset, last_offset)


def _settings_of(settings: "TieringSettings", root: Path) -> "TieringSettings":
    """Return settings with the same store and limits, a database below `root`, and neither log dirs nor brokers."""
    from include.tiering.settings import load_settings

    own = load_settings(None, {"metadata.url": f"sqlite:///{root}/metadata.sqlite"}, {}, overrides_origin="drill")
    kept = {"remote_storage": settings.remote_storage, "read": settings.read, "prices": settings.prices}
    return own.model_copy(update=kept)
