"""A process that removes orphans and, if told to, dies by SIGKILL at a named point of it.

    removal_worker RUN_ID [--kill-at STEP] [--kill-after-objects N]

The first start copies what there is, plants orphans, audits, and approves a plan; later ones go on with it, as a batch
does that is started again. STEP is a value of `RemovalStep`. Settings come from TIERING_... variables.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from include.tiering.app import App, open_app
from include.tiering.errors import StateConflictError
from include.tiering.model.segments import RemoteLogSegmentId, Uuid
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.orphan_objects import Orphan, OrphanFailure, OrphanKind, StoredOrphans
from include.tiering.settings import load_settings
from tests.doubles.dying import KillAt, die, worker_arguments
from tests.doubles.stored_log import some_segment

ORPHANS: Final = 3


def dying(orphans: StoredOrphans, after_objects: int) -> StoredOrphans:
    """Removes the first objects of a group, then the process dies."""
    remove = orphans.remove

    def some(pending: Sequence[Orphan]) -> tuple[OrphanFailure, ...]:
        remove(pending[:after_objects])
        die()
        return ()

    orphans.remove = some  # type: ignore[method-assign, assignment]
    return orphans


def plant(app: App) -> list[str]:
    """Attempts of a partition that is copied, under ids that no metadata has, without their manifest; the keys."""
    (partition,) = app.adapters.stores.metadata.partitions()
    known = app.adapters.stores.metadata.list_segments(partition)[0].metadata
    keys = []
    for number in range(ORPHANS):
        _, data = some_segment(1_000, seed=str(number))
        segment_id = RemoteLogSegmentId(partition, Uuid(b"orphan" + number.to_bytes(10, "big")))
        orphan = replace(known, remote_log_segment_id=segment_id, segment_size_bytes=1_000)
        *planted, manifest = app.adapters.storage.copy_log_segment(
            orphan, data, limiter=UnlimitedBytes(), on_sent=lambda _: None
        )
        app.adapters.orphans.remove([Orphan(OrphanKind.OBJECT, manifest.key)])
        keys += [one.key for one in planted]
    return keys


def prepare(app: App, run_id: str) -> None:
    app.set_up.migrate()
    try:
        app.adapters.stores.removals.run(run_id)
        return
    except StateConflictError:
        pass
    app.copying.plan("copy")
    app.copying.run_batch("copy", "copy/0")
    plant(app)
    approve(app, run_id)


def approve(app: App, run_id: str) -> None:
    """Audit, plan, apply the deletion limits, approve."""
    app.audit.run(f"audit-{run_id}")
    plan = app.audit.plan_removals(run_id, f"audit-{run_id}")
    app.audit.apply_removal_limits(run_id)
    app.audit.approve_removals(run_id, plan.plan_hash, author="test")


def main() -> None:
    arguments = worker_arguments("--kill-after-objects")
    with open_app(load_settings(), observe=KillAt(arguments.kill_at)) as app:
        prepare(app, arguments.run_id)
        if arguments.kill_after_objects is not None:
            app.adapters.orphans = dying(app.adapters.orphans, arguments.kill_after_objects)
        app.audit.run_removal_batch(arguments.run_id, f"{arguments.run_id}-batch")
