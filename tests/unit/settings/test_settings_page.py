"""Defaults, units and bounds are those that docs/settings.md promises to people who upgrade."""

from include.tiering.cli.docs_pages import settings_page
from tests.doubles.source_tree import ROOT


def test_each_setting_is_as_the_page_says() -> None:
    assert settings_page() == (ROOT / "docs" / "settings.md").read_text()
