"""Entry point of `python -m include.tiering.cli`, which the launcher `./tiering` runs."""

import sys
from typing import Final

from include.tiering.cli.app import cli

_COMPLETION: Final = {"--install-completion", "--show-completion"}

if __name__ == "__main__":
    # Shells complete a command by the last part of its path, and the name is part of a variable's name: no `./` there.
    is_about_completion = bool(_COMPLETION & set(sys.argv[1:2]))
    cli(prog_name="tiering" if is_about_completion else "./tiering", complete_var="_TIERING_COMPLETE")
