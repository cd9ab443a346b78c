"""What a job demands of Spark whose one action must run once.

A batch is repeated by Airflow alone, after its lease was given back. Spark must not start a second copy of a task that
is slow, nor start a failed one again.
"""

import re
from collections.abc import Callable
from typing import Final

from include.tiering.errors import SettingError

_LOCAL_WITH_FAILURES: Final = re.compile(r"local\[[^,\]]+,\s*(\d+)\s*\]\Z")

ReadConf = Callable[[str, str | None], str | None]


def require_single_attempt(conf: ReadConf) -> None:
    """`conf` answers a key with its value, or with the second argument.

    Raises:
        SettingError: speculation is on, or a task may be tried more than once.
    """
    if str(conf("spark.speculation", "false")).lower() != "false":
        raise SettingError("spark.speculation is on: this job's one task must run once; set spark.speculation=false")
    failures = conf("spark.task.maxFailures", None)
    if failures != "1":
        found = "4 (Spark's default)" if failures is None else failures
        raise SettingError(f"spark.task.maxFailures is {found}: this job's one task must run once; set it to 1")
    master = conf("spark.master", "") or ""
    matched = _LOCAL_WITH_FAILURES.match(master)
    if matched is not None and matched[1] != "1":
        raise SettingError(f"spark.master {master} allows {matched[1]} attempts of a task: use local[n] or local[n,1]")
