"""A process that runs one expiration run and, if told to, dies by SIGKILL at a named point of it.

    python -m tests.doubles.delete_worker RUN_ID [--kill-at STEP] [--kill-after-segments N]

The first start copies what there is, plans the run and lets it pass the brake; later ones go on with it, as a batch
does that is started again. STEP is a value of `DeleteStep`. Settings come from TIERING_... variables.
"""

import argparse
import os
import signal
from collections.abc import Sequence

from include.tiering.errors import StateConflictError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.quota.config_store import ConfigEntity, EntityType
from include.tiering.remote_storage.contract import DeleteFailure, RemoteStorage
from include.tiering.settings import load_settings
from include.tiering.tasks.delete_segments import DeleteStep
from include.tiering.wiring import Tiering, open_tiering
from tests.doubles.storage_decorators import StorageDecorator

TOPIC = "normal"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillAt:
    def __init__(self, step: str | None) -> None:
        self._step = step

    def __call__(self, step: DeleteStep, partition: TopicIdPartition, offset: int) -> None:
        if step == self._step:
            die()


class DyingStorage(StorageDecorator):
    """Deletes the objects of the first segments of a group, then the process dies."""

    def __init__(self, inner: RemoteStorage, segments: int) -> None:
        super().__init__(inner)
        self._segments = segments

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        super().delete_log_segments(segments[: self._segments])
        die()
        return ()


def prepare(tiering: Tiering, run_id: str) -> None:
    """Everything of the topic is copied, and expires because nothing of it is to be kept."""
    tiering.migrate()
    try:
        tiering.deletions.run(run_id)
        return
    except StateConflictError:
        pass
    tiering.plan_copy(f"copy-{run_id}")
    tiering.copy_batch(f"copy-{run_id}", f"copy-{run_id}/0")
    retention = {"retention.bytes": "0", "retention.ms": "0"}
    tiering.alter_configs(ConfigEntity(EntityType.TOPICS, TOPIC), retention, author="test")
    plan = tiering.plan_expiration(run_id)
    tiering.brake(run_id)
    tiering.approve(run_id, plan.plan_hash, author="test")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_id")
    parser.add_argument("--kill-at")
    parser.add_argument("--kill-after-segments", type=int)
    arguments = parser.parse_args()
    with open_tiering(load_settings(), observe=KillAt(arguments.kill_at)) as tiering:
        prepare(tiering, arguments.run_id)
        if arguments.kill_after_segments is not None:
            tiering.storage = DyingStorage(tiering.storage, arguments.kill_after_segments)
        tiering.delete_batch(arguments.run_id, f"{arguments.run_id}-batch")


if __name__ == "__main__":
    main()
