"""A process that has imported what workers need and forks one for each line that it reads: what is killed is a process
like any other, and there is no second of imports before each.

    python -m tests.doubles.worker_template

Input: a line of JSON `{"worker": "copy_worker", "arguments": [...], "environment": {...}}`. Output: a line with the
exit code of the worker, negative for the signal that ended it. It ends with its input.
"""

import json
import os
import sys
from typing import NoReturn

import boto3

from tests.doubles import (
    claim_worker,
    command_worker,
    copy_worker,
    delete_worker,
    ingest_worker,
    publish_worker,
    rebuild_worker,
    removal_worker,
    restore_worker,
    verify_worker,
)

WORKERS = {
    "claim_worker": claim_worker,
    "command_worker": command_worker,
    "copy_worker": copy_worker,
    "delete_worker": delete_worker,
    "ingest_worker": ingest_worker,
    "publish_worker": publish_worker,
    "rebuild_worker": rebuild_worker,
    "removal_worker": removal_worker,
    "restore_worker": restore_worker,
    "verify_worker": verify_worker,
}
__all__ = ["WORKERS", "boto3"]


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(**json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(worker: str, arguments: list[str], environment: dict[str, str]) -> NoReturn:
    """Never returns. Standard output is the template's own."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [worker, *arguments]
    WORKERS[worker].main()
    os._exit(0)


if __name__ == "__main__":
    main()
