"""Commands run in this process, over a fake of the library."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from tests.doubles.fake_app import FakeApp

Run = Callable[..., Result]


@pytest.fixture
def app() -> FakeApp:
    return FakeApp()


@pytest.fixture
def run(app: FakeApp) -> Run:
    """`run("scan", "--json")` with the fake; `environ` adds variables."""

    def invoke(*arguments: str, **environ: str) -> Result:
        session = Session(open_app=app.open)  # type: ignore[arg-type]
        return CliRunner(env={"COLUMNS": "200", **environ}).invoke(cli, arguments, obj=session, prog_name="./tiering")

    return invoke


@pytest.fixture
def document(run: Run) -> Callable[..., Any]:
    """The JSON document of a command, whatever its exit code."""
    return lambda *arguments, **environ: json.loads(run(*arguments, "--json", **environ).stdout)
