"""Where the history of sizes is kept."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.settings import load_settings
from include.tiering.sizes.service import SizeService

SQLITE = "sqlite:////srv/tiering/metadata.sqlite"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TIERING_METADATA__URL": SQLITE}, "/srv/tiering/sizes-history"),
        ({"TIERING_METADATA__URL": "postgresql+psycopg://host/tiering"}, "/run/1/sizes-history"),
        ({"TIERING_METADATA__URL": SQLITE, "TIERING_SIZES__HISTORY_PATH": "/own"}, "/own"),
    ],
)
def test_the_history_is_beside_the_database_or_where_somebody_wants_it(environ: dict[str, str], expected: str) -> None:
    service: Any = object.__new__(SizeService)
    service._settings = load_settings(environ=environ)
    assert service.history_dir(Path("/run/1")) == Path(expected)
