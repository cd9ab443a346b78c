"""What hundreds of commands that run in one process share: the parser of `./tiering`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

from typer import testing
from typer.main import get_command


@contextmanager
def shared_commands() -> Iterator[None]:
    """typer's `CliRunner` reads the signatures of all commands once, not for each command that it runs."""
    with patch.object(testing, "_get_command", cache(get_command)):
        yield
