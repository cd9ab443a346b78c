"""Entry point of `python -m include.tiering.cli`, which the launcher `./tiering` runs."""

import atexit
import gc
import os
import sys
from typing import Final

_COMPLETION: Final = {"--install-completion", "--show-completion"}
_NEW_OBJECTS: Final = 10_000
"""New objects before a garbage collection. With Python's 700, imports cause 240 collections that find nothing."""

if __name__ == "__main__":
    gc.set_threshold(_NEW_OBJECTS)
    # A last collection, among all objects of a process that ends, would take a quarter of the time of a short command.
    atexit.register(gc.freeze)
    # Pydantic would look through the metadata of all installed packages for plugins, which takes as long as its import.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from include.tiering.cli.app import cli

    # Shells complete a command by the last part of its path, and the name is part of a variable's name: no `./` there.
    is_about_completion = bool(_COMPLETION & set(sys.argv[1:2]))
    cli(prog_name="tiering" if is_about_completion else "./tiering", complete_var="_TIERING_COMPLETE")
