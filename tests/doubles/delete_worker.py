"""A process that runs one expiration run and, if told to, dies by SIGKILL at a named point of it.

    delete_worker RUN_ID [--kill-at STEP] [--kill-after-segments N]

The first start copies what there is, plans the run and lets it pass the deletion limits; later ones go on with it, as a
batch does that is started again. STEP is a value of `DeleteStep`. Settings come from TIERING_... variables.
"""

from collections.abc import Sequence

from include.tiering.app import App, open_app
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.errors import StateConflictError
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.remote_storage.contract import DeleteFailure, RemoteStorage
from include.tiering.settings import load_settings
from tests.doubles.dying import KillAt, die, worker_arguments
from tests.doubles.storage_decorators import StorageDecorator

TOPIC = "normal"


class DyingStorage(StorageDecorator):
    """Deletes the objects of the first segments of a group, then the process dies."""

    def __init__(self, inner: RemoteStorage, segments: int) -> None:
        super().__init__(inner)
        self._segments = segments

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        super().delete_log_segments(segments[: self._segments])
        die()
        return ()


def prepare(app: App, run_id: str) -> None:
    """Everything of the topic is copied, and expires because nothing of it is to be kept."""
    app.set_up.migrate()
    try:
        app.adapters.stores.deletions.run(run_id)
        return
    except StateConflictError:
        pass
    app.copying.plan(f"copy-{run_id}")
    app.copying.run_batch(f"copy-{run_id}", f"copy-{run_id}/0")
    retention = {"retention.bytes": "0", "retention.ms": "0"}
    app.configs.alter(ConfigEntity(EntityType.TOPICS, TOPIC), retention, author="test")
    plan = app.expiration.plan(run_id)
    app.expiration.apply_limits(run_id)
    app.expiration.approve(run_id, plan.plan_hash, author="test")


def main() -> None:
    arguments = worker_arguments("--kill-after-segments")
    with open_app(load_settings(), observe=KillAt(arguments.kill_at)) as app:
        prepare(app, arguments.run_id)
        if arguments.kill_after_segments is not None:
            storage = DyingStorage(app.adapters.storage, arguments.kill_after_segments)
            app.adapters.storage = storage  # type: ignore[assignment]
        app.expiration.run_batch(arguments.run_id, f"{arguments.run_id}-batch")
