"""kill -9 at every write of the store's generation, and a copy of the database that is made in the state which the kill
left: of both, the first that plans owns the store, the other one is refused in one sentence, and no run needs a person.
The crash table of `remote_storage/claim_store.py` is the specification.
"""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from include.tiering.app import open_app
from include.tiering.cli.app import cli
from include.tiering.remote_storage.claim_store import ClaimStep
from include.tiering.settings import load_settings
from tests.doubles.claim_worker import FILE_RENAMED, FILE_WRITTEN
from tests.doubles.copy_process import kill_worker

pytestmark = pytest.mark.chaos

TURNS = 20
OTHERS = (("verify", "--all"), ("audit",), ("plan",), ("adopt", "--all", "--approve"), ("migrate",))


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner(env={"COLUMNS": "400"}).invoke(cli, list(arguments), prog_name="./tiering")
    return found.exit_code, found.output


def cloned(url: str, path: Path) -> str:
    """A copy of the database as it is now, as a backup takes it."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as source, sqlite3.connect(path) as target:
        source.backup(target)
    return f"sqlite:///{path}"


def generations(url: str) -> tuple[Any, ...]:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        return connection.execute(
            "SELECT generation, generation_token, pending_generation, pending_token FROM stores"
        ).fetchone()


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("deployment")
def test_of_a_database_and_its_copy_one_owns_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_app(load_settings()) as app:
        app.set_up.migrate()
        storage = app.adapters.unguarded_storage
    points: list[str] = list(ClaimStep)
    if os.environ["TIERING_REMOTE_STORAGE__URL"].startswith("file:"):
        points += [FILE_WRITTEN, FILE_RENAMED]
    owner = os.environ["TIERING_METADATA__URL"]
    for turn in range(TURNS):
        monkeypatch.setenv("TIERING_METADATA__URL", owner)
        before, point = generations(owner), points[turn % len(points)]
        marker = storage.read_marker()
        kill_worker(f"killed-{turn}", "--kill-at", point, worker="claim_worker")
        _, token, _, pending = generations(owner)
        assert (pending is None) == (point is ClaimStep.SETTLED), "it died somewhere else"
        assert (token == before[1]) == (point is not ClaimStep.SETTLED)
        has_written = point not in (ClaimStep.PENDING_STORED, FILE_WRITTEN)
        assert (storage.read_marker() == marker) == (not has_written)

        copy = cloned(owner, tmp_path / f"clone-{turn}.sqlite")
        first, second = (owner, copy) if turn % 2 else (copy, owner)
        monkeypatch.setenv("TIERING_METADATA__URL", first)
        command: tuple[str, ...]
        for command in (("copy", "--limit-bytes", "1"), ("expire", "--approve")):
            code, output = run(*command)
            assert code == 0, output
        monkeypatch.setenv("TIERING_METADATA__URL", second)
        for command in (("copy",), ("expire", "--approve"), OTHERS[turn % len(OTHERS)]):
            code, output = run(*command)
            assert (code, output.count("another database has used store")) == (1, 1), output
            assert first.rpartition("/")[2] in output
        owner = first

    monkeypatch.setenv("TIERING_METADATA__URL", owner)
    assert run("copy")[0] == 0
    code, output = run("verify", "--all", "--json")
    assert (code, json.loads(output[output.index("{") :])["failed"]) == (0, []), output
    code, output = run("audit", "--json")
    kinds = {one["kind"] for one in json.loads(output[output.index("{") :])["findings"]}
    assert "dangling-reference" not in kinds, output
