"""Spark may run the one task of a job once, or the job refuses."""

import pytest

from include.tiering.errors import SettingError
from spark_jobs.batch import require_single_attempt

_RIGHT = {"spark.task.maxFailures": "1", "spark.master": "local[2]"}


@pytest.mark.parametrize(
    "conf",
    [
        _RIGHT,
        {**_RIGHT, "spark.speculation": "false"},
        {**_RIGHT, "spark.master": "local[2,1]"},
        {**_RIGHT, "spark.master": "local[*]"},
        {**_RIGHT, "spark.master": "spark://127.0.0.1:7077"},
        {"spark.task.maxFailures": "1"},
    ],
)
def test_one_attempt_is_accepted(conf: dict[str, str]) -> None:
    require_single_attempt(conf.get)


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({**_RIGHT, "spark.speculation": "true"}, "spark.speculation"),
        ({"spark.master": "local[2]"}, "4 \\(Spark's default\\)"),
        ({**_RIGHT, "spark.task.maxFailures": "2"}, "spark.task.maxFailures is 2"),
        ({**_RIGHT, "spark.master": "local[2, 4]"}, "allows 4 attempts"),
        ({**_RIGHT, "spark.master": "local[*,2]"}, "allows 2 attempts"),
    ],
)
def test_more_than_one_attempt_is_refused_by_name(conf: dict[str, str], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        require_single_attempt(conf.get)
