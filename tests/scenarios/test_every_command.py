"""Every command as text, as JSON and as CSV: on the set-up that `make up` writes, and on the smallest one.

None ends with a bug, all forms end with the same exit code, and each document has its shape of docs/json.md.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from include.tiering.cli.app import COMMANDS, cli
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.cli.json_page import DOCUMENTS
from local.layout import Layout
from local.tiering_config import CONFIG_VARIABLE, sample_log_dirs, sample_settings
from tests.doubles.json_shapes import problems_of, shape_name

pytestmark = pytest.mark.integration

_TOPIC: Final = "orders"
_DEFAULT_BROKER: Final = ("--entity-type", "brokers", "--entity-default")
_RETENTION: Final = ("configs", "--alter", "--entity-type", "topics", "--entity-name", _TOPIC, "--add-config")
_STEPS: Final[tuple[tuple[tuple[str, ...], int], ...]] = (
    # Before the set-up: nothing is there, and it says so.
    (("ready",), 3),
    (("status",), 3),
    (("init", "--output", "{tmp}/tiering.toml"), 2),
    (("migrate",), 0),
    (("ready",), 0),
    (("scan", "--topic", _TOPIC), 0),
    (("scan", "--deep", "--topic", _TOPIC), 0),
    (("plan",), 0),
    (("doctor", _TOPIC), 0),
    (("sizes",), 0),
    (("backfill", "--topic", _TOPIC, "--quota", "1MiB"), 0),
    (("copy", "--limit-bytes", "100000"), 0),
    (("copy",), 0),
    (("skip", _TOPIC, "--partition", "0", "--reason", "agreed"), 0),
    (("skip", _TOPIC, "--partition", "0", "--reason", "agreed", "--follow-source-from", "1"), 1),
    (("verify", "--dry-run"), 0),
    (("verify",), 0),
    (("sizes",), 0),
    (("sizes", "--by", "topic", "--no-log-dirs"), 0),
    (("log-dirs",), 0),
    (("pause", "--topic", _TOPIC), 0),
    (("status",), 0),
    (("resume", "--topic", _TOPIC), 0),
    (("pools",), 0),
    (("throughput",), 0),
    (("events",), 0),
    (("events", "--topic", _TOPIC, "--since", "2h"), 0),
    (("events", "--topic", "ordrs"), 2),
    (("attention",), 1),  # The bundled broker data have an open transaction.
    (("quality",), 0),
    (("segments", _TOPIC), 0),
    (("retention", _TOPIC, "--retention-ms", "7d"), 0),
    (("configs", "--describe"), 0),
    (("configs", "--describe", "--target", "brokers"), 2),
    (("configs", "--describe", "--target", "both"), 2),
    (("configs", "--alter", *_DEFAULT_BROKER, "--target", "brokers", "--add-config", "log.cleaner.threads=2"), 2),
    (("delete-records", _TOPIC, "--partition", "0", "--before-offset", "1", "--approve"), 0),
    ((*_RETENTION, "retention.bytes=1"), 0),
    (("expire", "--dry-run"), 0),
    (("expire", "--approve"), 0),
    (("expire", "--withdraw", "nosuch"), 1),
    (("audit",), 0),
    (("audit", "--accept", "99"), 1),
    (("audit", "--withdraw", "nosuch"), 1),
    (("adopt", "--all", "--dry-run"), 0),
    (("rebuild", "--dry-run"), 0),
    (("take-over-store", "--approve"), 0),
    (("relocate-store", "--approve"), 0),
    (("fetch", "bigrecs", "0", "--output", "{tmp}"), 0),
    (("fetch", "bigrecs", "0", "--output", "{tmp}", "--offset", "0"), 0),
    (("restore", "bigrecs", "--output", "{tmp}/restored", "--dry-run"), 0),
    (("restore", "bigrecs", "--output", "{tmp}/restored"), 0),
    (("handover", _TOPIC, "--dry-run"), 2),
    (("handover", _TOPIC), 2),
    (("handover", _TOPIC, "--rehearse", "--kafka-home", "{tmp}"), 1),
    (("drill", _TOPIC, "--kafka-home", "{tmp}"), 1),
    (("publish", _TOPIC, "--dry-run"), 2),
    (("ingest",), 2),
)
"""Command lines in the order of a life, each with its exit code on the set-up of `make up`."""
_WITHOUT_BROKERS: Final = {
    *("configs --target brokers", "configs --alter --target brokers", "configs --target both"),
    *("handover", "handover --dry-run", "handover --rehearse", "publish", "ingest", "init", "drill"),
}
"""Their documents need a cluster: tests of these commands over doubles compare them, and type checking does."""
_NOTHING_LIKE_IT: Final = {"skip --follow-source-from", "expire --withdraw", "audit --accept", "audit --withdraw"}
"""Nothing is there to decide or to withdraw: these documents are compared in the same two ways."""


def _run(arguments: Sequence[str], config: Path) -> Result:
    environ = {CONFIG_VARIABLE: str(config), "COLUMNS": "80"}
    if arguments[0] == "rebuild":
        # It makes metadata in an empty database only.
        environ["TIERING_METADATA__URL"] = f"sqlite:///{config}.rebuilt"
    runner = CliRunner(env=environ)
    return runner.invoke(cli, list(arguments), prog_name="./tiering")


def _problems(step: tuple[str, ...], config: Path, seen: set[str]) -> tuple[int, list[str]]:
    """Run a command line in all its forms; return its exit code, and what is wrong."""
    text = _run(step, config)
    found = [] if text.exit_code != ExitCode.INTERNAL else [f"a bug: {text.stderr}"]
    if not text.stdout and not text.stderr:
        found.append("it says nothing")
    if step[0] not in DOCUMENTS:
        return text.exit_code, found
    shown = {form: _run((*step, "-o", form), config) for form in ("json", "csv")}
    found += [
        f"exit code {text.exit_code} as text, {result.exit_code} as {form}: {result.stderr}"
        for form, result in shown.items()
        if result.exit_code != text.exit_code
    ]
    if shown["json"].stdout:
        document = json.loads(shown["json"].stdout)
        found += problems_of(step, document)
        seen.add(shape_name(step, document) or "")
    elif not shown["json"].stderr.startswith("error: "):
        found.append("neither a document nor an error")
    return text.exit_code, found


def _walk(config: Path, tmp_path: Path) -> tuple[list[str], list[str], set[str]]:
    """Return what is wrong, where an exit code is another than that of `make up`, and whose shapes were seen."""
    seen: set[str] = set()
    wrong, other = [], []
    for step, code in _STEPS:
        filled = tuple(part.format(tmp=tmp_path / "fetched") for part in step)
        exit_code, found = _problems(filled, config, seen)
        wrong += [f"{' '.join(step)}: {problem}" for problem in found]
        other += [f"{' '.join(step)}: exit code {exit_code}"] if exit_code != code else []
    return wrong, other, seen


def test_the_steps_have_every_command() -> None:
    assert {step[0] for step, _ in _STEPS} == {function.__name__.replace("_", "-") for function, _, _ in COMMANDS}


def test_every_command_on_the_set_up_of_make_up(tmp_path: Path) -> None:
    layout = Layout.below(tmp_path)
    layout.state.mkdir()
    config = Path(sample_settings(layout, airflow_port=1)[CONFIG_VARIABLE])
    wrong, other, seen = _walk(config, tmp_path)
    assert (wrong, other) == ([], [])
    headings = {f"{command} {options}".rstrip() for command, shapes in DOCUMENTS.items() for options in shapes}
    assert headings - seen == _WITHOUT_BROKERS | _NOTHING_LIKE_IT


def test_every_command_on_the_smallest_set_up(tmp_path: Path) -> None:
    """A directory as the store, one log dir, and SQLite: no topic, no Airflow, no broker."""
    config = tmp_path / "tiering.toml"
    (tmp_path / "store").mkdir()
    log_dir = sample_log_dirs(Layout.below(tmp_path))[1]
    config.write_text(
        f'remote_storage.url = "file://{tmp_path}/store"\nmetadata.url = "sqlite:///{tmp_path}/tiering.sqlite"\n'
        f'[[log_dirs]]\nbroker_id = 1\npath = "{log_dir}"\n'
    )
    wrong, _, seen = _walk(config, tmp_path)
    assert wrong == []
    assert seen >= {"ready", "scan", "doctor", "status", "sizes", "log-dirs", "expire", "audit", "configs", "pools"}
