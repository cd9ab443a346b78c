"""A program: copy and verify one segment in this process, and print which modules of include/ ran, in which order.

    PYTHONPATH=TRACED python -P CHECKOUT/local/structure/traced_segment.py TRACED

TRACED is the checkout whose modules are traced. It may be another one than CHECKOUT, and need not contain this program,
because the program is run by its path and imports no module next to it. Only `one_segment` uses names of the library.
"""

import importlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


@contextmanager
def one_segment(directory: Path) -> Iterator[Callable[[], None]]:
    """Set a deployment up below `directory`: broker log dirs, SQLite, a file store.

    Yields:
        The function to trace, which plans the copy of one segment, copies the segment and verifies it.
    """
    from include.tiering.app import open_app
    from include.tiering.settings import load_settings
    from local.sample_data import broker_log_dirs, unpack

    log_dirs = broker_log_dirs(unpack("public", directory) / "stopped")
    config = directory / "tiering.toml"
    config.write_text(
        f"""log_dirs = [{", ".join(f'{{broker_id = {broker}, path = "{path}"}}' for broker, path in log_dirs.items())}]
[metadata]
url = "sqlite:///{directory / "metadata.sqlite"}"
[remote_storage]
url = "{(directory / "store").as_uri()}"
[topics]
include = ["orders"]
"""
    )
    settings = load_settings(config, environ={"HOME": str(directory)})
    with open_app(settings) as app:
        app.set_up.migrate()

    def scan_to_verdict() -> None:
        with open_app(settings) as app:
            # A plan takes its first segment even if it exceeds the limit.
            app.copying.plan("run", limit_bytes=1)
            copied = app.copying.run_batch("run", "run/0")
            report = app.verification.verify_run("run")
        if len(copied.copied) != 1 or report.segments != 1 or report.failed:
            raise RuntimeError(f"not exactly one segment was copied and passed: {copied}, {report}")

    yield scan_to_verdict


class Recorder:
    """Records, as a profile function of every thread, which modules below `sources` run.

    A module is entered when a Python function whose code is in the module's file is called, or a generator there is
    resumed. Code that runs because a module is being imported does not count. Code that `dataclass` and others generate
    at run time does not count either, because it is in no file.
    """

    def __init__(self, root: Path, sources: str = "include") -> None:
        self._root = str(root) + os.sep
        self._sources = str(root / sources) + os.sep
        self._modules: dict[CodeType, str | None] = {}
        self._threads: list[_Thread] = []
        self._local = threading.local()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record this thread, and all threads that start before the context ends and are no daemons."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def document(self) -> dict[str, Any]:
        """Return the modules of each thread in the order of their first call, and the calls between modules.

        The threads are in the order in which they began. The calls of all threads are in one list, each as a pair: the
        calling module, and the called one.
        """
        calls = {call for thread in self._threads for call in thread.calls}
        return {
            "threads": [list(thread.entered) for thread in self._threads if thread.entered],
            "calls": sorted(calls),
        }

    def import_all(self) -> None:
        """Import every module below `sources`, so that what is imported late is not imported under the profile."""
        for file in sorted(Path(self._sources).rglob("*.py")):
            if file.name == "__main__.py":
                continue
            # Some modules are scripts that another program runs (migrations) and cannot be imported here. If the traced
            # function needs a module that cannot be imported, the import fails again while it runs.
            with suppress(Exception):
                importlib.import_module(self._name_of(str(file)))

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take one event of `sys.setprofile`."""
        if event not in {"call", "return"}:
            return
        thread = self._thread()
        if frame.f_code.co_name == "<module>":
            thread.importing = max(0, thread.importing + (1 if event == "call" else -1))
        elif not thread.importing and (module := self._module_of(frame.f_code)) is not None:
            thread.called(module) if event == "call" else thread.returned()

    def _thread(self) -> "_Thread":
        found: _Thread | None = getattr(self._local, "thread", None)
        if found is None:
            found = self._local.thread = _Thread()
            # Daemon threads renew leases and quota allocations or publish metrics on a timer: they are left out.
            if not threading.current_thread().daemon:
                self._threads.append(found)
        return found

    def _module_of(self, code: CodeType) -> str | None:
        if code not in self._modules:
            file = code.co_filename
            self._modules[code] = self._name_of(file) if file.startswith(self._sources) else None
        return self._modules[code]

    def _name_of(self, file: str) -> str:
        inside = file.removeprefix(self._root).removesuffix(".py").removesuffix(f"{os.sep}__init__")
        return inside.replace(os.sep, ".")


class _Thread:
    """What one thread entered. `entered` keeps the order of first calls."""

    def __init__(self) -> None:
        self.importing = 0
        self.entered: dict[str, None] = {}
        self.calls: set[tuple[str, str]] = set()
        self._stack: list[str] = []

    def called(self, module: str) -> None:
        self.entered.setdefault(module)
        if self._stack and self._stack[-1] != module:
            self.calls.add((self._stack[-1], module))
        self._stack.append(module)

    def returned(self) -> None:
        """End the newest call. The function in which recording began returns without a recorded call: ignore that."""
        if self._stack:
            self._stack.pop()


def main(root: Path) -> int:
    """Trace one segment, print the record as JSON, and return the exit code 0."""
    recorder = Recorder(root)
    with tempfile.TemporaryDirectory(prefix="structure-") as directory, one_segment(Path(directory)) as scan_to_verdict:
        recorder.import_all()
        with recorder.recording():
            scan_to_verdict()
    print(json.dumps(recorder.document()))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
