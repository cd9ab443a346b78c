"""The generated pages name everything that is declared, and a stale page is found."""

from pathlib import Path

import pytest

from include.tiering.app.metrics import METRICS
from include.tiering.cli.docs_pages import main
from include.tiering.configs.config_catalogue import all_configs
from include.tiering.settings.catalogue import all_settings


def test_every_setting_and_metric_has_a_row(tmp_path: Path) -> None:
    assert main([], tmp_path) == 0
    settings, metrics = (tmp_path / "settings.md").read_text(), (tmp_path / "metrics.md").read_text()
    assert [s.name for s in all_settings() if f"`{s.name}`<br>`{s.environment_name}`" not in settings] == []
    assert [c.name for c in all_configs() if f"`{c.name}`" not in settings] == []
    assert [m.name for m in METRICS if f"`{m.name}" not in metrics] == []
    rows = [line for page in (settings, metrics) for line in page.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") and line.count("|") in (4, 5) for line in rows)


def test_the_pages_of_this_repository_are_fresh() -> None:
    """They say each default, unit and bound: who changes one sees it there, too."""
    assert main(["--check"]) == 0


def test_a_stale_or_missing_page_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], tmp_path) == 1
    main([], tmp_path)
    assert main(["--check"], tmp_path) == 0
    (tmp_path / "metrics.md").write_text("old")
    assert main(["--check"], tmp_path) == 1
    assert "metrics.md is stale" in capsys.readouterr().err
    assert (tmp_path / "metrics.md").read_text() == "old"
