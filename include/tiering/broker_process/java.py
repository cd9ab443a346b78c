"""The Java that brokers are started with."""

import os
import re
import shutil
import subprocess
from functools import cache
from typing import Final

from include.tiering.errors import KafkaMissingError

_OLDEST: Final = 17
_ANSWER_SECONDS: Final = 60


@cache
def java() -> str:
    """The program: JAVA_HOME's, else the one on the PATH.

    Raises:
        KafkaMissingError: there is none, or it is too old for a broker.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else None
    program = program or shutil.which("java")
    if program is None:
        raise KafkaMissingError(f"java is neither in JAVA_HOME nor on the PATH: a broker needs Java {_OLDEST} or newer")
    said = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
    ).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < _OLDEST:
        raise KafkaMissingError(
            f"{program} is no Java {_OLDEST} or newer, which a broker needs: {said.splitlines()[:1]}"
        )
    return program
