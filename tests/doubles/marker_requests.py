"""Requests that a deployment sends to its S3 store, counted as they leave: those about the marker, and the others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from include.tiering.app import App
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from tests.doubles.broker_data import broker_data
from tests.doubles.s3_server import ACCESS_KEY, SECRET_KEY, VersityGateway

BUCKET: Final = "archive"
_CONDITIONS: Final = {"If-Match": "if it is the expected one", "If-None-Match": "if there is none"}


class Requests:
    """What was sent since the last `take`: ("PUT marker", "if it is the expected one"), ("GET object", "")."""

    def __init__(self) -> None:
        self._sent: Counter[tuple[str, str]] = Counter()

    def note(self, request: Any, **_context: Any) -> None:
        what = "marker" if request.url.endswith(f"/{MARKER_KEY}") else "object"
        condition = "".join(text for header, text in _CONDITIONS.items() if header in request.headers)
        self._sent[f"{request.method} {what}", condition if what == "marker" else ""] += 1

    def take(self) -> dict[tuple[str, str], int]:
        taken, self._sent = dict(self._sent), Counter()
        return taken


@contextmanager
def counted(app: App) -> Iterator[Requests]:
    """Retries count, too."""
    requests = Requests()
    storage: Any = app.adapters.unguarded_storage
    events = storage._store._client.meta.events
    events.register("before-send.s3", requests.note)
    try:
        yield requests
    finally:
        events.unregister("before-send.s3", requests.note)


def s3_deployment(directory: Path, server: VersityGateway) -> Path:
    """The bundled log directories, a SQLite database below `directory`, and a bucket; returns the settings file, which
    is for its owner alone, as it holds the key."""
    server.make_bucket(BUCKET)
    brokers = broker_data("public") / "stopped"
    config = directory / "tiering.toml"
    config.touch(mode=0o600)
    config.write_text(
        f"""log_dirs = [
  {{broker_id = 1, path = "{brokers / "broker-1"}"}},
  {{broker_id = 2, path = "{brokers / "broker-2"}"}},
]
[metadata]
url = "sqlite:///{directory / "metadata.sqlite"}"
[remote_storage]
url = "s3://{BUCKET}/tiered"
endpoint_url = "{server.endpoint_url}"
region = "us-east-1"
access_key_id = "{ACCESS_KEY}"
secret_access_key = "{SECRET_KEY}"
[topics]
include = ["orders"]
"""
    )
    return config
