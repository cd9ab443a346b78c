"""The leader epochs of a leader, from its answers alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import BrokersUnavailableError, SourceChangedError, SourceVanishedError
from include.tiering.kafka.fetch_api.contract import Leader
from include.tiering.kafka.fetch_api.cut_log import history_of
from include.tiering.kafka.protocol.fetch_requests import EpochEnd
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition
from tests.doubles.leader_logs import FetchWorld, ModelLogs
from tests.doubles.model_brokers import ModelBrokers
from tests.doubles.segments import partition_of
from tests.unit.kafka.fetch_api.test_cut_log import batches, scanned, world_of

ORDERS = partition_of("orders")


class Checkpoint(ModelLogs):
    """Answers as Kafka's LeaderEpochFileCache does, of a checkpoint that is written down by its own code."""

    def __init__(self, epochs: LeaderEpochs, log_end: int) -> None:
        super().__init__(ModelBrokers())
        self.epochs = epochs
        self.log_end = log_end
        self.lies: dict[int, EpochEnd] = {}

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        if leader_epoch in self.lies:
            return self.lies[leader_epoch]
        entries = self.epochs.entries
        if entries and leader_epoch == entries[-1].epoch:
            return EpochEnd(0, leader_epoch, self.log_end)
        higher = next((entry for entry in entries if entry.epoch > leader_epoch), None)
        if higher is None or leader_epoch < 0:
            return EpochEnd(0, -1, -1)
        lower = [entry.epoch for entry in entries if entry.epoch <= leader_epoch]
        return EpochEnd(0, lower[-1] if lower else leader_epoch, higher.start_offset)


@st.composite
def checkpoints(draw: st.DrawFn) -> tuple[LeaderEpochs, int, int]:
    """(epochs, log start, log end): the last epoch may have no record, the first begins at the log start or below."""
    epochs = sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=6)))
    starts = sorted(draw(st.sets(st.integers(0, 60), min_size=len(epochs), max_size=len(epochs))))
    log_end = draw(st.integers(starts[-1], 70))
    log_start = draw(st.integers(starts[0], log_end))
    return LeaderEpochs.of(zip(epochs, starts, strict=True)), log_start, log_end


@given(checkpoints())
def test_it_is_that_of_the_checkpoint(known: tuple[LeaderEpochs, int, int]) -> None:
    epochs, log_start, log_end = known
    found = history_of(Checkpoint(epochs, log_end), ORDERS, Leader(1, epochs.entries[-1].epoch), log_start)
    assert found.range(log_start, log_end) == (epochs.range(log_start, log_end) if log_start < log_end else found)


def test_a_log_with_records_below_its_first_epoch_has_none_for_them() -> None:
    checkpoint = Checkpoint(LeaderEpochs.of([(3, 50)]), 60)
    assert history_of(checkpoint, ORDERS, Leader(1, 3), 0) == LeaderEpochs.of([(3, 50)])


@pytest.mark.parametrize(
    ("asked", "lie"),
    [
        (5, EpochEnd(0, -1, -1)),
        (5, EpochEnd(0, 6, 100)),
        (5, EpochEnd(0, 5, 5)),
        (4, EpochEnd(0, 3, 101)),
        (4, EpochEnd(0, 5, 60)),
        (4, EpochEnd(0, -1, -1)),
        (2, EpochEnd(0, 0, 61)),
    ],
)
def test_answers_that_contradict_one_another_are_refused(asked: int, lie: EpochEnd) -> None:
    checkpoint = Checkpoint(LeaderEpochs.of([(0, 0), (3, 30), (5, 60)]), 100)
    checkpoint.lies[asked] = lie
    with pytest.raises(SourceChangedError, match="broker 1"):
        history_of(checkpoint, ORDERS, Leader(1, 5), 10)


def log_of_two_epochs(tmp_path: Path) -> FetchWorld:
    world = world_of(tmp_path, batches(0, 5) + batches(10, 15, leader_epoch=2))
    world.model.leader_epoch = 2
    return world


def test_the_leader_is_believed_and_not_what_was_read_before(tmp_path: Path) -> None:
    world = log_of_two_epochs(tmp_path)
    replica = scanned(world)
    assert replica.leader_epochs == world.source.leader_epochs(replica) == LeaderEpochs.of([(0, 0), (2, 10)])
    world.replace(batches(0, leader_epoch=0) + batches(5, 10, 15, leader_epoch=2))
    assert world.source.leader_epochs(replica) == LeaderEpochs.of([(0, 0), (2, 5)])


def test_an_epoch_0_that_the_checkpoint_lacks_is_not_taken_for_known(tmp_path: Path) -> None:
    """Checkpoints of {1: 10} and of {0: 0, 1: 10} give the same answers, and the batches say epoch 0 either way."""
    world = world_of(tmp_path, batches(0, 5) + batches(10, 15, leader_epoch=1))
    world.model.leader_epoch = 1
    replica = scanned(world)
    assert world.source.leader_epochs(replica) == LeaderEpochs.of([(0, 0), (1, 10)])
    logs: Any = world.logs
    logs.epoch_end = Checkpoint(LeaderEpochs.of([(1, 10)]), 20).epoch_end
    assert world.source.leader_epochs(replica) == LeaderEpochs.of([(0, 0), (1, 10)]), "only the log start tells"
    world.model.earliest_epoch = -1
    assert world.source.leader_epochs(replica) == LeaderEpochs.of([(1, 10)])


def test_another_leader_refuses(tmp_path: Path) -> None:
    world = log_of_two_epochs(tmp_path)
    replica = scanned(world)
    world.model.leader, world.model.leader_epoch = 2, 3
    with pytest.raises(BrokersUnavailableError):
        world.source.leader_epochs(replica)
    logs: Any = world.logs
    logs._led = lambda *_: world.model
    older = replace(replica, replica_id=replace(replica.replica_id, broker_id=2), leader_epoch=4)
    with pytest.raises(SourceChangedError, match="leader was 2 in epoch 4, now 2 in epoch 3"):
        world.source.leader_epochs(older)


def test_a_topic_that_was_created_again_has_no_history_here(tmp_path: Path) -> None:
    world = log_of_two_epochs(tmp_path)
    replica = scanned(world)
    logs: Any = world.logs
    logs._led = lambda *_: None  # These requests name the topic, and the new one answers.
    world.brokers.create_topic("orders")
    with pytest.raises(SourceVanishedError):
        world.source.leader_epochs(replica)
