"""Options that several commands share."""

from typing import Annotated

import typer

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Topic name or shell-style pattern; may be repeated.", metavar="PATTERN"),
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document instead of tables.")]
LimitBytes = Annotated[
    int | None,
    typer.Option("--limit-bytes", min=1, help="Take at most this many bytes, in whole segments.", metavar="BYTES"),
]
