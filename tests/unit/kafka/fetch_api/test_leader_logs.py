"""Requests to leaders, against servers that answer as a test says."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import cycle

import pytest

from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import (
    BrokersError,
    BrokersForbiddenError,
    BrokersRefusedError,
    BrokersUnavailableError,
    SendingStoppedError,
    UnknownTopicError,
)
from include.tiering.formats.primitive_types import write_uvarint
from include.tiering.kafka.fetch_api.contract import Leader
from include.tiering.kafka.fetch_api.leader_logs import ANSWERS_AT_ONCE, LONGEST_SILENCE_SECONDS, KafkaLeaderLogs
from include.tiering.kafka.protocol.fetch_requests import EpochEnd, FetchedPartition
from include.tiering.kafka.protocol.login import Address, BrokerLogin
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_servers import API_VERSIONS, api_versions, frame, scripted_broker

PARTITION = TopicIdPartition(Uuid(bytes(range(16))), 3, "orders")
LEADER = Leader(1, 7)
FETCH, METADATA, EPOCH_END = 1, 3, 23


def fetch_answer(error: int = 0, partition_error: int = 0, partition: int = 3, records: bytes = b"batch") -> bytes:
    body = bytes(4) + error.to_bytes(2) + bytes(4) + b"\x02" + PARTITION.topic_id.value + b"\x02"
    body += partition.to_bytes(4) + partition_error.to_bytes(2)
    body += (100).to_bytes(8) + (90).to_bytes(8) + (5).to_bytes(8) + b"\0" + b"\xff" * 4
    return body + write_uvarint(len(records) + 1) + records + b"\0\0\0"


def throttled_answer(throttle_ms: int) -> bytes:
    """What a broker answers above a client quota: no topic."""
    return throttle_ms.to_bytes(4) + bytes(2) + bytes(4) + b"\x01\0"


def epoch_answer(error: int = 0, partition: int = 3) -> bytes:
    body = bytes(4) + b"\x02\x07orders\x02" + error.to_bytes(2) + partition.to_bytes(4)
    return body + (4).to_bytes(4) + (77).to_bytes(8) + b"\0\0\0"


def metadata_of(*addresses: Address) -> bytes:
    """Brokers 1, 2 and so on."""
    brokers = b""
    for broker_id, address in enumerate(addresses, 1):
        host = address.host.encode()
        brokers += broker_id.to_bytes(4) + bytes([len(host) + 1]) + host + address.port.to_bytes(4) + b"\0\0"
    return bytes(4) + bytes([len(addresses) + 1]) + brokers + b"\x04cid" + bytes(4) + b"\x01\0"


@contextmanager
def leader(
    fetch: bytes | Sequence[bytes] = b"",
    epochs: bytes = b"",
    *,
    bytes_per_second: int = 1 << 30,
    clock: Clock | None = None,
) -> Iterator[KafkaLeaderLogs]:
    """Broker 1 answers every fetch, and every question about epochs, with these bodies; several: one after another."""
    listening: list[Address] = []
    fetches = cycle([fetch]) if isinstance(fetch, bytes) else iter(fetch)

    def script(key: int, correlation: bytes) -> bytes | None:
        if key == API_VERSIONS:
            return api_versions(correlation)
        if key == METADATA:
            return frame(correlation, metadata_of(*listening))
        return frame(correlation, next(fetches) if key == FETCH else epochs)

    with scripted_broker(script) as address:
        listening.append(address)
        login = BrokerLogin((address,), timeout_ms=10_000)
        with closing(KafkaLeaderLogs(login, clock or SystemClock(), bytes_per_second)) as logs:
            yield logs


def read(logs: KafkaLeaderLogs, leader: Leader = LEADER) -> bytes:
    with logs.read(PARTITION, leader, 17, 1 << 20) as found:
        return bytes(found.records)


def test_bytes_and_bounds_are_returned_as_they_are() -> None:
    with leader(fetch_answer()) as logs, logs.read(PARTITION, LEADER, 17, 1 << 20) as found:
        assert found == FetchedPartition(0, 100, 90, 5, b"batch")


def test_the_end_of_an_epoch() -> None:
    with leader(epochs=epoch_answer()) as logs:
        assert logs.epoch_end(PARTITION, LEADER, 4) == EpochEnd(0, 4, 77)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (fetch_answer(error=100), UnknownTopicError),
        (fetch_answer(partition_error=3), UnknownTopicError),
        (fetch_answer(partition_error=6), BrokersUnavailableError),
        (fetch_answer(partition_error=74), BrokersUnavailableError),
        (fetch_answer(partition_error=75), BrokersUnavailableError),
        (fetch_answer(partition_error=1), BrokersRefusedError),
        (fetch_answer(partition=4), BrokersRefusedError),
    ],
    ids=range(7),
)
def test_errors_name_the_partition_the_offset_and_the_broker(answer: bytes, error: type[BrokersError]) -> None:
    with leader(answer) as logs, pytest.raises(error, match="fetch of orders-3 from offset 17 from broker 1"):
        read(logs)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(epoch_answer(74), BrokersUnavailableError), (epoch_answer(partition=4), BrokersRefusedError)],
    ids=range(2),
)
def test_errors_about_epochs_name_them(answer: bytes, error: type[BrokersError]) -> None:
    with leader(epochs=answer) as logs, pytest.raises(error, match="end of leader epoch 4 of orders-3 from broker 1"):
        logs.epoch_end(PARTITION, LEADER, 4)


def test_a_fetch_without_its_right_names_the_acl() -> None:
    missing = r"from broker 1: not authorised for this topic \(the ACL that allows Read on topic orders is missing\)"
    with leader(fetch_answer(partition_error=29)) as logs, pytest.raises(BrokersForbiddenError, match=missing):
        read(logs)


def test_a_question_about_epochs_without_its_right_names_the_acl() -> None:
    missing = "the ACL that allows Describe on topic orders is missing"
    with leader(epochs=epoch_answer(29)) as logs, pytest.raises(BrokersForbiddenError, match=missing):
        logs.epoch_end(PARTITION, LEADER, 4)


def test_a_leader_that_does_not_answer_lets_others_be_read() -> None:
    listening: list[Address] = []
    answers = threading.Event()

    def script(slow: bool, key: int, correlation: bytes) -> bytes | None:
        if key == API_VERSIONS:
            return api_versions(correlation)
        if key == METADATA:
            return frame(correlation, metadata_of(*listening))
        if slow:
            answers.wait(90)
        return frame(correlation, fetch_answer())

    with scripted_broker(partial(script, True)) as slow, scripted_broker(partial(script, False)) as quick:
        listening += [slow, quick]
        with closing(KafkaLeaderLogs(BrokerLogin((quick,), timeout_ms=90_000), SystemClock(), 1 << 30)) as logs:
            waiting = [threading.Thread(target=read, args=[logs]) for _ in range(2 * ANSWERS_AT_ONCE)]
            for each in waiting:
                each.start()
            try:
                for _ in range(3):
                    assert read(logs, Leader(2, 7)) == b"batch"
                assert all(each.is_alive() for each in waiting)
            finally:
                answers.set()
                for each in waiting:
                    each.join(90)


def paced(clock: ManualClock) -> KafkaLeaderLogs:
    return KafkaLeaderLogs(BrokerLogin((Address("localhost", 1),)), clock, bytes_per_second=1000)


def test_reads_of_a_broker_are_spread_and_those_of_others_are_not_held() -> None:
    clock, looked = ManualClock(), list[float]()
    logs = paced(clock)
    began = clock.monotonic()
    for _ in range(3):
        logs.keep_pace(LEADER, 500, lambda: looked.append(clock.monotonic()))
    assert clock.monotonic() - began == pytest.approx(1.0)
    assert max(clock.slept) <= 0.25
    assert len(looked) == len(clock.slept)
    clock.advance(60)
    began = clock.monotonic()
    logs.keep_pace(LEADER, 500, lambda: None)  # What was not read meanwhile is not made up for.
    logs.keep_pace(Leader(2, 7), 100, lambda: None)
    assert clock.monotonic() == began


def test_the_pace_ends_with_the_work() -> None:
    def stop() -> None:
        raise SendingStoppedError("paused")

    clock = ManualClock()
    logs = paced(clock)
    logs.keep_pace(LEADER, 100_000, stop)  # The first read may begin.
    with pytest.raises(SendingStoppedError):
        logs.keep_pace(LEADER, 100_000, stop)
    assert clock.slept == [0.25]


def test_the_pace_counts_what_was_read_and_not_what_was_asked_for() -> None:
    with leader(fetch_answer(), bytes_per_second=1 << 20) as logs:
        began = time.monotonic()
        for _ in range(20):
            assert read(logs) == b"batch"
        assert time.monotonic() - began < 10  # And not 20 s, as for answers of 1 MiB.


def test_a_throttled_read_is_sent_again_after_the_time_that_the_broker_says() -> None:
    """Longer than a request may take; who waits can end it, and questions about epochs do not wait with it."""
    clock, looked = ManualClock(), list[float]()
    with leader([throttled_answer(90_000), fetch_answer()], epoch_answer(), clock=clock) as logs:
        began = clock.monotonic()

        def go_on() -> None:
            looked.append(clock.monotonic())
            assert logs.epoch_end(PARTITION, LEADER, 4) == EpochEnd(0, 4, 77)

        with logs.read(PARTITION, LEADER, 17, 1 << 20, go_on) as found:
            assert found.records == b"batch"
    assert clock.monotonic() - began == pytest.approx(90)
    assert max(clock.slept) <= 0.25
    assert len(looked) == len(clock.slept)


def test_the_wait_of_a_throttled_read_ends_with_the_work() -> None:
    def stop() -> None:
        raise SendingStoppedError("paused")

    clock = ManualClock()
    with leader([throttled_answer(90_000), fetch_answer()], clock=clock) as logs:
        with pytest.raises(SendingStoppedError), logs.read(PARTITION, LEADER, 17, 1 << 20, stop):
            pass
        assert clock.slept == [0.25]
        clock.advance(90)
        assert read(logs) == b"batch"


@pytest.mark.parametrize(("throttle_ms", "waited_seconds"), [(7_200_000, 0), (600_001, 0), (250_000, 500)])
def test_a_broker_that_throttles_for_too_long_is_not_waited_for(throttle_ms: int, waited_seconds: int) -> None:
    """Each read waits as long as the one before did, and none keeps the memory of its answers."""
    clock = ManualClock()
    with leader(throttled_answer(throttle_ms), clock=clock) as logs:
        for _ in range(ANSWERS_AT_ONCE + 1):
            clock.advance(throttle_ms / 1000)
            began = clock.monotonic()
            with pytest.raises(BrokersUnavailableError, match="raise consumer_byte_rate"):
                read(logs)
            assert clock.monotonic() - began == pytest.approx(waited_seconds)


def test_a_throttled_read_goes_on_while_the_broker_sends_to_others() -> None:
    clock = ManualClock()
    answers = [answer for _ in range(4) for answer in (throttled_answer(500_000), fetch_answer())]
    with leader(answers, clock=clock) as logs:
        began, others = clock.monotonic(), list[bytes]()

        def go_on() -> None:
            """Another read of the same leader gets what the broker sends next."""
            if clock.monotonic() - began > 500 * (len(others) + 1) - 0.1 and len(others) < 3:
                others.append(b"")
                others[-1] = read(logs)

        with logs.read(PARTITION, LEADER, 17, 1 << 20, go_on) as found:
            assert found.records == b"batch"
        assert others == [b"batch"] * 3
        assert clock.monotonic() - began > 2 * LONGEST_SILENCE_SECONDS


def test_answers_share_a_bounded_memory() -> None:
    """As many reads as there are buffers hold one each; the next one waits for the first that is given back."""
    begun, goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def hold(logs: KafkaLeaderLogs) -> None:
        with logs.read(PARTITION, LEADER, 17, 1 << 20) as found:
            begun.release()
            assert goes_on.acquire(timeout=60)
            assert found.records == b"batch"

    with leader(fetch_answer()) as logs:
        readers = [threading.Thread(target=hold, args=[logs]) for _ in range(ANSWERS_AT_ONCE + 1)]
        for reader in readers:
            reader.start()
        for _ in range(ANSWERS_AT_ONCE):
            assert begun.acquire(timeout=60)
        assert not begun.acquire(timeout=0.3)
        goes_on.release()
        assert begun.acquire(timeout=60)
        goes_on.release(ANSWERS_AT_ONCE)
        for reader in readers:
            reader.join(60)


def test_an_answer_that_is_larger_than_asked_for_is_read_nevertheless() -> None:
    """Its first batch has more bytes than were asked for, and more than a buffer takes."""
    records = bytes(300_000)
    with leader(fetch_answer(records=records)) as logs, logs.read(PARTITION, LEADER, 17, 1_000) as found:
        assert found.records == records
