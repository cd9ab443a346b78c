"""`./tiering`, each command in a process of its own that is forked from one which has the code loaded already.

Reads lines `{"arguments": [...], "stdout": PATH, "stderr": PATH}`; writes the command's process id, and when it has
ended its exit code (negative: the signal), each as a line.
"""

import json
import os
import sys
import traceback

from include.tiering import app
from include.tiering.cli.app import cli
from include.tiering.verification import great_expectations_evaluator


def main() -> None:
    assert app
    assert great_expectations_evaluator
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(asked["arguments"], asked["stdout"], asked["stderr"])
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(arguments: list[str], stdout: str, stderr: str) -> None:
    for number, path in ((1, stdout), (2, stderr)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    code = 1
    try:
        cli(arguments, prog_name="./tiering")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception:  # noqa: BLE001 - whatever it is, it is shown as an interpreter would
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # What was loaded for other commands need not be taken apart.
    os._exit(code)


if __name__ == "__main__":
    main()
