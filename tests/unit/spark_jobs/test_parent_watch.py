"""The watch sees a lost parent and a lost grandparent, waits out the grace, and leaves everybody else alone."""

import os
import subprocess
import sys
import threading

from spark_jobs.shared import ORPHANED_EXIT_CODE, ParentWatch, ancestors
from tests.doubles.patience import PATIENCE_SECONDS, eventually


class Family:
    def __init__(self) -> None:
        self.ids = (20, 10)
        self.left_with: list[int] = []
        self.has_left = threading.Event()

    def ancestors(self) -> tuple[int, ...]:
        return self.ids

    def leave(self, code: int) -> None:
        self.left_with.append(code)
        self.has_left.set()


def test_nothing_happens_while_the_parents_live() -> None:
    family = Family()
    with ParentWatch(read_ancestors=family.ancestors, leave=family.leave) as watch:
        assert watch.parents_alive()
    assert family.left_with == []


def test_a_lost_parent_ends_the_process() -> None:
    family = Family()
    with ParentWatch(read_ancestors=family.ancestors, leave=family.leave) as watch:
        family.ids = (1, 0)
        assert not watch.parents_alive()
        assert family.has_left.wait(PATIENCE_SECONDS)
    assert family.left_with == [ORPHANED_EXIT_CODE]


def test_a_lost_grandparent_ends_the_process() -> None:
    family = Family()
    with ParentWatch(read_ancestors=family.ancestors, leave=family.leave):
        family.ids = (20, 1)
        assert family.has_left.wait(PATIENCE_SECONDS)


def test_work_that_stops_by_itself_within_the_grace_is_not_cut() -> None:
    family = Family()
    with ParentWatch(read_ancestors=family.ancestors, leave=family.leave, grace_seconds=60):
        family.ids = (1, 0)
    assert family.left_with == []


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
