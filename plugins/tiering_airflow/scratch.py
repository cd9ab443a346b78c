"""A directory of its own for each Spark job: java.io.tmpdir, spark.local.dir and TMPDIR.

| crash | leaves | removed by |
|---|---|---|
| the job's JVM is killed | spark-*, blockmgr-*, liblz4-* in the job's directory | `scratch_directory`, as it ends |
| the Airflow task is killed | the job's directory with its lock file, unlocked | `sweep`, when the next job starts |

The lock is held by an open file of the task, so it is gone exactly when the task is.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = "spark-job-"
_LOCK: Final = "owner.lock"


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """A new directory below `parent`, removed with all it holds at the end; what dead owners left is removed first."""
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with (directory / _LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove directories whose owner is gone. One without a lock file is being made just now, and is left alone."""
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            with (directory / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue
