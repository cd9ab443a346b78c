"""A job whose driver died ends: with real processes."""

import os
import subprocess
import sys

from spark_jobs.shared import ancestors
from tests.doubles.patience import eventually


def test_ancestors_are_the_parent_and_its_parent() -> None:
    program = "from spark_jobs.shared import ancestors; print(*ancestors())"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert tuple(map(int, child.stdout.split())) == (os.getpid(), os.getppid())
    assert ancestors(1) == (os.getppid(),)


def test_a_real_process_ends_soon_after_its_parent() -> None:
    orphan = (
        "import os, time\nfrom spark_jobs.shared import ParentWatch\n"
        "with ParentWatch():\n print(os.getpid(), flush=True)\n time.sleep(600)"
    )
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {orphan!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        started.kill()
        eventually(lambda: not _is_alive(pid), "the orphan ends")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
