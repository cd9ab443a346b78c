"""Arguments and settings files that nobody in their right mind gives: a typed error, and nothing of a file is shown."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.archive import Archive, Command

pytestmark = pytest.mark.integration

TEXTS: Final = {
    "no UTF-8": "\udcff\udcfe",
    "a way out": "../../etc/shadow",
    "escapes": "\x1b]0;title\x07\x1b[2J",
    "nothing": "",
    "long": "x" * 100_000,
    "SQL": "'; DROP TABLE segments; --",
}
COMMANDS: Final = (
    ("scan", "--topic"),
    ("plan", "--topic"),
    ("copy", "--topic"),
    ("verify", "--topic"),
    ("sizes", "--topic"),
    ("log-dirs", "--topic"),
    ("expire", "--dry-run", "--topic"),
    ("expire", "--withdraw"),
    ("audit", "--withdraw"),
    ("audit", "--inventory"),
    ("ready", "--topic"),
    ("doctor",),
    ("pause", "--topic"),
    ("resume", "--topic"),
    ("fetch", "--output"),
    ("fetch",),
    ("skip",),
    ("delete-records",),
    ("publish",),
    ("handover",),
    ("configs", "--describe", "--topic"),
    ("configs", "--alter", "--topic", "orders", "--add-config"),
    ("rehearse",),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    archive = Archive.of(tmp_path_factory.mktemp("archive"))
    archive.copy()
    return archive


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_argument_is_refused_by_a_sentence_or_means_nothing(
    archive: Archive, app: Command, tmp_path: Path, command: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # `fetch --output` takes most texts for a folder beside the caller
    before = archive.left()
    arguments = [*command, text]
    if command[0] in ("fetch", "skip", "delete-records"):
        arguments += ["orders", "0"] if command[-1] == "--output" else ["0"]
    result = app(*arguments)
    assert result.exit_code in (0, 1, 2, 3), result.output[-2_000:]
    assert "internal error" not in result.output
    assert "\x1b]" not in result.output
    assert "\x1b[2J" not in result.output
    assert archive.left() == before


def deeply_nested(path: Path) -> None:
    path.write_text("topics.include = " + "[" * 100_000)


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    "make",
    [
        link_to("/dev/zero"),
        link_to("/etc/shadow"),
        link_to("/proc/self/environ"),
        link_to("/nowhere"),
        Path.mkdir,
        deeply_nested,
        lambda path: path.write_bytes(b"\xff\xfe\x00secret-of-the-file"),
    ],
    ids=["endless", "shadow", "environment", "nowhere", "directory", "nested", "binary"],
)
def test_a_settings_file_that_is_none_is_named_and_not_shown(
    app: Command, archive: Archive, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "settings.toml"
    make(path)
    result = Archive(tmp_path, archive.brokers)
    result.config = path
    refused = result.command("status")
    assert refused.exit_code == 2, refused.output[-2_000:]
    assert "settings.toml" in refused.output
    assert "root:" not in refused.output
    assert "secret-of-the-file" not in refused.output
