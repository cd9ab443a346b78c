"""Records read back by offset and leader epoch are the broker's own bytes: real log dirs, stores and database."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from include.tiering.app import App, open_app
from include.tiering.configs.config_catalogue import NARROW_FETCH_QUOTA, TOTAL_FETCH_QUOTA
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.errors import OffsetOutOfRangeError
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Verdict
from include.tiering.quotas.contract import NAMELESS_CLIENT, QuotaKind, QuotaLevel, Scope, fetch_scopes
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data
from tests.doubles.present import present
from tests.doubles.quotas import NoQuotas
from tests.doubles.s3_server import CREDENTIALS, versitygw_or_skip

pytestmark = pytest.mark.integration

Batch = tuple[int, int, int, bytes]
"""First offset, last offset, leader epoch and bytes."""

MAX_BYTES = 40_000


@pytest.fixture(scope="module", params=["file", "versitygw"])
def copied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """Everything eligible of the bundled brokers, copied and served."""
    directory = tmp_path_factory.mktemp(request.param)
    brokers = broker_data("public") / "stopped"
    environ = {
        "HOME": str(directory),
        "TIERING_LOG_DIRS": f"1:{brokers / 'broker-1'},2:{brokers / 'broker-2'}",
        "TIERING_METADATA__URL": f"sqlite:///{directory / 'metadata.sqlite'}",
        "TIERING_TOPICS__INCLUDE": "*",
    }
    if request.param == "file":
        with copied_to(environ, f"file://{directory / 'store'}") as app:
            yield app
        return
    with versitygw_or_skip(directory / "gateway") as server:
        server.make_bucket("tiered")
        environ["TIERING_REMOTE_STORAGE__ENDPOINT_URL"] = server.endpoint_url
        environ["TIERING_REMOTE_STORAGE__ACCESS_KEY_ID"] = CREDENTIALS["AWS_ACCESS_KEY_ID"]
        environ["TIERING_REMOTE_STORAGE__SECRET_ACCESS_KEY"] = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
        environ["TIERING_REMOTE_STORAGE__REGION"] = "us-east-1"
        with copied_to(environ, "s3://tiered/segments") as app:
            yield app


@contextmanager
def copied_to(environ: dict[str, str], url: str) -> Iterator[App]:
    settings = load_settings(environ={**environ, "TIERING_REMOTE_STORAGE__URL": url})
    with open_app(settings, quotas=NoQuotas()) as app:
        app.set_up.migrate()
        app.copying.plan("run-1")
        result = app.copying.run_batch("run-1", "run-1/0")
        assert not result.failed
        for segment in result.copied:
            app.adapters.stores.metadata.record_verdict(segment.segment_id, Verdict.PASSED)
        yield app


def batches_of(app: App, segment: RemoteLogSegmentMetadata) -> list[Batch]:
    """Read from the broker's own file, by the few fields that a batch begins with."""
    (path,) = (
        log_dir.path / str(segment.topic_id_partition) / f"{segment.start_offset:020d}.log"
        for log_dir in app.settings.log_dirs
        if log_dir.broker_id == segment.broker_id
    )
    content, batches, at = path.read_bytes(), [], 0
    while at < len(content):
        base, length, epoch = struct.unpack_from(">qii", content, at)
        (last_delta,) = struct.unpack_from(">i", content, at + 23)
        batches.append((base, base + last_delta, epoch, content[at : at + 12 + length]))
        at += 12 + length
    return batches


def expected(batches: list[Batch], offset: int, max_bytes: int) -> bytes:
    taken = b""
    for _, last, _, batch in batches:
        if last < offset:
            continue
        if taken and len(taken) + len(batch) > max_bytes:
            break
        taken += batch
    return taken


def log_of(app: App, partition: TopicIdPartition) -> list[Batch]:
    """All batches in remote storage; those that a later segment repeats once."""
    log: list[Batch] = []
    for row in app.adapters.stores.metadata.list_segments(partition):
        log += [batch for batch in batches_of(app, row.metadata) if not log or batch[0] > log[-1][1]]
    return log


def segments(app: App) -> list[RemoteLogSegmentMetadata]:
    found = [
        row.metadata
        for p in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(p)
    ]
    assert len(found) > 20
    return found


def first_of(segment: RemoteLogSegmentMetadata) -> int:
    """The first offset that answers: below it no leader epoch is known, the log start was moved there."""
    return max(segment.start_offset, segment.segment_leader_epochs.entries[0].start_offset)


def ask(app: App, *fetches: PartitionFetch, client: str = NAMELESS_CLIENT) -> list[FetchedRecords]:
    return list(app.reading.fetch_records(fetches, client))


def test_every_segment_from_its_start_middle_and_end(copied: App) -> None:
    logs = {partition: log_of(copied, partition) for partition in copied.adapters.stores.metadata.partitions()}
    fetches = [
        PartitionFetch(segment.topic_id_partition, offset, MAX_BYTES)
        for segment in segments(copied)
        for offset in {first_of(segment), (first_of(segment) + segment.end_offset) // 2, segment.end_offset}
    ]
    answers = ask(copied, *fetches, client="test")
    assert {answer.fetch for answer in answers} == set(fetches)
    across = 0
    for answer in answers:
        fetch = answer.fetch
        assert answer.error is None
        wanted = expected(logs[fetch.partition], fetch.offset, MAX_BYTES)
        assert bytes(answer.records) == wanted, fetch
        assert answer.base_offset <= fetch.offset < answer.next_offset
        ends = {segment.end_offset for segment in segments(copied) if segment.topic_id_partition == fetch.partition}
        across += any(answer.base_offset <= end < answer.next_offset - 1 for end in ends)
    assert across, "no answer went on into a next segment"


def test_a_consumer_that_goes_on_gets_the_whole_log_once(copied: App) -> None:
    for partition in copied.adapters.stores.metadata.partitions():
        log = log_of(copied, partition)
        offset, got = first_of(copied.adapters.stores.metadata.list_segments(partition)[0].metadata), b""
        log = [batch for batch in log if batch[1] >= offset]
        while offset <= log[-1][1]:
            (answer,) = ask(copied, PartitionFetch(partition, offset, 200_000))
            assert answer.error is None
            got += answer.records
            offset = answer.next_offset
        assert got == b"".join(batch for *_, batch in log), partition


def test_an_offset_is_found_under_the_epoch_that_wrote_it_and_under_no_other(copied: App) -> None:
    spanning = [segment for segment in segments(copied) if len(segment.segment_leader_epochs) > 1]
    assert spanning
    for segment in spanning:
        batches = batches_of(copied, segment)
        for epoch, start in segment.segment_leader_epochs:
            offset = max(start, segment.start_offset)
            if present(segment.end_offset_of_epoch(epoch)) < offset:
                continue
            (answer,) = ask(copied, PartitionFetch(segment.topic_id_partition, offset, 1, epoch))
            assert answer.error is None
            assert bytes(answer.records) == expected(batches, offset, 1)
            assert struct.unpack_from(">i", answer.records, 12)[0] == epoch
            (other,) = ask(copied, PartitionFetch(segment.topic_id_partition, offset, 1, epoch + 1_000))
            assert isinstance(other.error, OffsetOutOfRangeError)


def test_the_first_batch_comes_even_if_it_is_larger(copied: App) -> None:
    for segment in segments(copied)[:5]:
        (answer,) = ask(copied, PartitionFetch(segment.topic_id_partition, segment.end_offset, 1))
        assert bytes(answer.records) == batches_of(copied, segment)[-1][3]


def test_one_bad_partition_keeps_no_other(copied: App) -> None:
    first, second, *_ = copied.adapters.stores.metadata.partitions()
    good = PartitionFetch(second, log_of(copied, second)[-1][0], MAX_BYTES)
    beyond = PartitionFetch(first, log_of(copied, first)[-1][1] + 1_000_000, MAX_BYTES)
    answers = {answer.fetch: answer for answer in ask(copied, beyond, good)}
    assert isinstance(answers[beyond].error, OffsetOutOfRangeError)
    assert bytes(answers[good].records) == expected(log_of(copied, second), good.offset, MAX_BYTES)


def test_only_what_passed_is_served(copied: App) -> None:
    segment = segments(copied)[-1]
    asked = PartitionFetch(segment.topic_id_partition, segment.end_offset, MAX_BYTES)
    copied.adapters.stores.metadata.record_verdict(segment.remote_log_segment_id, Verdict.NONE)
    try:
        (answer,) = ask(copied, asked)
    finally:
        copied.adapters.stores.metadata.record_verdict(segment.remote_log_segment_id, Verdict.PASSED)
    assert isinstance(answer.error, OffsetOutOfRangeError)
    assert "its verdict is none" in str(answer.error)
    assert ask(copied, asked)[0].records


@contextmanager
def quota_of(app: App, entity: ConfigEntity, name: str, bytes_per_second: int) -> Iterator[None]:
    app.configs.alter(entity, {name: str(bytes_per_second)}, author="test")
    try:
        yield
    finally:
        app.configs.alter(entity, {name: None}, author="test")


def ask_anew(app: App, fetch: PartitionFetch, client: str = NAMELESS_CLIENT) -> FetchedRecords:
    """Ask as a command does: in a process that knows of no fetch before."""
    with open_app(app.settings) as another:
        (answer,) = another.reading.fetch_records([fetch], client)
    assert answer.error is None
    return answer


def test_a_command_is_told_at_once_of_what_others_read(copied: App) -> None:
    segment = segments(copied)[0]
    fetch = PartitionFetch(segment.topic_id_partition, first_of(segment), 100_000)
    with quota_of(copied, ALL_BROKERS, TOTAL_FETCH_QUOTA, 20_000):
        first = ask_anew(copied, fetch)
        with open_app(copied.settings) as busy:
            others = busy.adapters.quotas.admission(samples=11, sample_ms=1_000)
            others.record(fetch_scopes(1, "another"), 2_000_000)
        second = ask_anew(copied, fetch)
    assert (0 < len(first.records) <= 20_000, first.throttle_ms) == (True, 0)
    assert (second.records, second.throttle_ms > 1_000) == (b"", True)


def test_a_quota_too_small_for_any_read_answers_at_once(copied: App) -> None:
    segment = segments(copied)[0]
    fetch = PartitionFetch(segment.topic_id_partition, first_of(segment), 1)
    with quota_of(copied, ALL_BROKERS, TOTAL_FETCH_QUOTA, 10):
        answers = [ask_anew(copied, fetch) for _ in range(2)]
    assert all((answer.records, answer.throttle_ms > 0) == (b"", True) for answer in answers)


def test_who_gives_no_name_is_held_to_the_default_of_clients(copied: App) -> None:
    segment = segments(copied)[0]
    fetch = PartitionFetch(segment.topic_id_partition, first_of(segment), 100_000)
    with quota_of(copied, ConfigEntity(EntityType.CLIENTS), NARROW_FETCH_QUOTA, 20_000):
        with open_app(copied.settings) as busy:
            others = busy.adapters.quotas.admission(samples=11, sample_ms=1_000)
            others.record([Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, NAMELESS_CLIENT)], 2_000_000)
        nameless, named = ask_anew(copied, fetch), ask_anew(copied, fetch, "reports")
    assert (bool(nameless.records), bool(named.records)) == (False, True)
