"""Commands run in this process, over a fake of the library."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from tests.doubles.fake_app import FakeApp
from tests.doubles.json_shapes import checked

Run = Callable[..., Result]


@pytest.fixture
def app() -> FakeApp:
    return FakeApp()


@pytest.fixture
def run(app: FakeApp) -> Run:
    """`run("scan", "--json")` with the fake; `environ` adds variables. Each document has its documented shape."""

    def invoke(*arguments: str, **environ: str) -> Result:
        session = Session(open_app=app.open)  # type: ignore[arg-type]
        runner = CliRunner(env={"COLUMNS": "200", **environ})
        return checked(arguments, runner.invoke(cli, arguments, obj=session, prog_name="./tiering"))

    return invoke


@pytest.fixture
def document(run: Run) -> Callable[..., Any]:
    """The JSON document of a command, whatever its exit code."""
    return lambda *arguments, **environ: json.loads(run(*arguments, "--json", **environ).stdout)
