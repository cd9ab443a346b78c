"""What hundreds of commands and clients of one process share: the parser of `./tiering`, the SDK's model of S3."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

import botocore.session
from typer import testing
from typer.main import get_command


@contextmanager
def shared_commands() -> Iterator[None]:
    """typer's `CliRunner` reads the signatures of all commands once, not for each command that it runs."""
    with patch.object(testing, "_get_command", cache(get_command)):
        yield


@contextmanager
def shared_service_models() -> Iterator[None]:
    """botocore reads its files about S3 once, not for each client: that is half of the time to make a client."""
    with patch.object(botocore.session, "create_loader", cache(botocore.session.create_loader)):
        yield
