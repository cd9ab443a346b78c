"""A cluster that one program starts for itself, and stops at its end."""

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from include.tiering.app import App, open_app
from include.tiering.configs.airflow_api import AirflowApi, Login
from include.tiering.errors import TieringError
from include.tiering.settings import load_settings
from local.cluster.assembly import CA_VARIABLE, Assembled, assemble
from local.cluster.cluster import stop
from local.cluster.host import State
from local.cluster.secret_files import AUTHORITY


class OwnCluster:
    """A cluster in a new directory for temporary files, and the console on which its program reports.

    Args:
        prefix: of the directory's name.
        table_width: columns that the program's tables need at least.
    """

    def __init__(self, prefix: str, table_width: int) -> None:
        self.console = Console(highlight=False)
        self.console.width = max(self.console.width, table_width)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._started = time.monotonic()
        self.state = State(Path(tempfile.mkdtemp(prefix=prefix)))

    def say(self, line: str) -> None:
        self.console.print(f"[dim]{self._seconds:5.0f} s[/dim]  {line}", soft_wrap=True)

    def run(self, program: Callable[[Assembled], None]) -> None:
        """Assemble the cluster, run the program, which starts it, and stop it; an error of either is printed."""
        try:
            program(assemble(self.state.root, say=self.say))
        except (RuntimeError, TieringError) as error:
            self.console.print(str(error), style="red", markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            self.console.print("interrupted", style="red")
        finally:
            stop(self.state, self.say)

    def conclude(self, *, held: bool, words: str) -> int:
        """Print the last line, and keep the directory unless all held; return the exit code."""
        if held:
            shutil.rmtree(self.state.root, ignore_errors=True)
        else:
            self.console.print(f"kept for inspection: {self.state.root}")
        self.console.print(f"{words if held else f'NOT {words}'}, {self._seconds:.0f} s")
        return 0 if held else 1

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started


@contextmanager
def logged_in(assembled: Assembled) -> Iterator[tuple[AirflowApi, App]]:
    """Give Airflow's API, as its administrator, and the library with the settings of a cluster that was started."""
    state = assembled.cluster.state
    os.environ[CA_VARIABLE] = str(state.secrets / AUTHORITY)
    password = (state.secrets / "airflow_admin_password").read_text()
    with (
        AirflowApi(assembled.base_url, Login("admin", password)) as api,
        open_app(load_settings(state.settings)) as app,
    ):
        yield api, app
