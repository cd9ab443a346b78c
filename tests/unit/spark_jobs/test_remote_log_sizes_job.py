"""The arguments of the size job, and an output that cannot be written."""

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.sizes import READ_RANGES, attempt, parse_arguments


def test_ranges_have_a_default_and_are_read():
    assert parse_arguments(["--output", "d"]).ranges == READ_RANGES
    assert parse_arguments(["--output", "d", "--ranges", "1"]).ranges == 1


@pytest.mark.parametrize("ranges", ["0", "-1", "many"])
def test_unusable_ranges_are_a_usage_error(ranges: str):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--output", "d", f"--ranges={ranges}"])
    assert ended.value.code == 2


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    options = parse_arguments(["--output", str(tmp_path / "file" / "sizes")])
    no_session: Any = None
    refused = attempt(no_session, options)
    assert refused["exit_code"] == 2
    assert str(tmp_path / "file" / "sizes") in refused["error"]
