"""The arguments of the size job."""

import pytest

from spark_jobs.remote_log_sizes_job import READ_RANGES, parse_arguments


def test_ranges_have_a_default_and_are_read():
    assert parse_arguments(["--output", "d"]).ranges == READ_RANGES
    assert parse_arguments(["--output", "d", "--ranges", "1"]).ranges == 1


@pytest.mark.parametrize("ranges", ["0", "-1", "many"])
def test_unusable_ranges_are_a_usage_error(ranges: str):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--output", "d", f"--ranges={ranges}"])
    assert ended.value.code == 2
