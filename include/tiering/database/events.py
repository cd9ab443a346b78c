"""The append-only event log: decisions and outcomes, with their author; never payloads or secrets."""

from typing import Final

from sqlalchemy import Connection, insert

from include.tiering.database.schema import events
from include.tiering.database.statements import stored_text

_ADD: Final = insert(events)


def record_event(
    connection: Connection, cluster_id: str, kind: str, subject: str, detail: str, author: str, now_ms: int
) -> None:
    values = {
        "cluster_id": cluster_id,
        "occurred_at_ms": now_ms,
        "kind": kind,
        "subject": stored_text(subject),
        "detail": stored_text(detail),
        "author": stored_text(author),
    }
    connection.execute(_ADD, values)
