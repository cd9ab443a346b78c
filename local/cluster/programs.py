"""The programs of the other parts: redis, PostgreSQL and Prometheus of the distribution, and versitygw.

Where redis or Prometheus is not on the PATH, Debian's packages are fetched by apt-get and unpacked below
`.cache/debian`: nothing is installed, and no service of the machine is started.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from local.layout import CACHE

NO_VERSITYGW: Final = "versitygw is not here: `make s3-server` builds it where Go is installed"
_DEBIAN: Final = CACHE / "debian"
_REDIS_PACKAGES: Final = ("redis-tools", "libjemalloc2", "liblzf1")
"""redis-server is the same program as redis-check-rdb, which acts by the name under which it is called."""
_PROMETHEUS_PACKAGES: Final = ("prometheus",)
_POSTGRESQL: Final = Path("/usr/lib/postgresql")
_FETCH_SECONDS: Final = 300


class ProgramMissingError(RuntimeError):
    """A program is not on this machine; the message says how to get it."""


def find_versitygw() -> Path | None:
    """Return the newest versitygw of `make s3-server`, else that on the PATH, else that of `go install`, else None."""
    built = sorted((CACHE / "bin").glob("versitygw*"))
    on_path = shutil.which("versitygw")
    gopath = os.environ.get("GOPATH") or str(Path.home() / "go")
    candidates = [*reversed(built), *([Path(on_path)] if on_path else []), Path(gopath) / "bin" / "versitygw"]
    return next((path for path in candidates if os.access(path, os.X_OK) and path.stat().st_size), None)


def versitygw_directory() -> Path:
    """Return the directory with versitygw. Raises ProgramMissingError if it is not there."""
    found = find_versitygw()
    if found is None:
        raise ProgramMissingError(NO_VERSITYGW)
    return found.parent


def redis_directory() -> Path:
    """Return a directory with redis-server and redis-cli. Raises ProgramMissingError if they cannot be had."""
    on_path = shutil.which("redis-server")
    if on_path and shutil.which("redis-cli", path=str(Path(on_path).parent)):
        return Path(on_path).parent
    unpacked = _unpacked("redis", _REDIS_PACKAGES)
    wrappers = unpacked / "wrappers"
    wrappers.mkdir(exist_ok=True)
    libraries = next(unpacked.glob("usr/lib/*-linux-gnu"))
    for name, program in {"redis-server": "redis-check-rdb", "redis-cli": "redis-cli"}.items():
        text = f'#!/bin/bash\nLD_LIBRARY_PATH={libraries} exec -a {name} {unpacked}/usr/bin/{program} "$@"\n'
        (wrappers / name).write_text(text)
        (wrappers / name).chmod(0o755)
    return wrappers


def prometheus_directory() -> Path:
    """Return a directory with prometheus and promtool. Raises ProgramMissingError if they cannot be had."""
    on_path = shutil.which("prometheus")
    if on_path and shutil.which("promtool", path=str(Path(on_path).parent)):
        return Path(on_path).parent
    return _unpacked("prometheus", _PROMETHEUS_PACKAGES) / "usr" / "bin"


def postgresql_directory() -> Path:
    """Return the directory with the programs of the newest PostgreSQL of the distribution.

    The locked package of the tests brings one too, which was built without TLS.

    Raises:
        ProgramMissingError: there is none.
    """
    found = sorted(_POSTGRESQL.glob("*/bin/initdb"), key=lambda path: float(path.parents[1].name))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise ProgramMissingError("PostgreSQL's initdb is neither on the PATH nor below /usr/lib: install postgresql")
    return found[-1].parent if found else Path(str(on_path)).resolve().parent


def _unpacked(name: str, packages: Sequence[str]) -> Path:
    target = _DEBIAN / name
    if not target.exists():
        if not shutil.which("apt-get") or not shutil.which("dpkg"):
            raise ProgramMissingError(f"{name} is not on the PATH, and there is no apt-get here: install {name}")
        stage = target.with_name(f".{name}.{os.getpid()}")
        stage.mkdir(parents=True)
        try:
            _run(["apt-get", "download", *packages], stage)
            for package in sorted(stage.glob("*.deb")):
                _run(["dpkg", "--extract", str(package), str(stage)], stage)
                package.unlink()
            stage.rename(target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    return target


def _run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if done.returncode:
        raise ProgramMissingError(f"{' '.join(command)} failed (try apt-get update): {done.stderr[-500:]}")
