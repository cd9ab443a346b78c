"""The guard `unread-records`: a database that may not know all published records deletes nothing before it reads them.

Only the database has the journals of published records. A database that takes the store over, or is rebuilt from the
store, may lack journals of later publications. Until the brokers' records are read again from the beginning, it does
not know what was published. The guard is raised in the transaction that leads to this state. It is cleared once each
partition of the metadata topic was read from offset 0 to an end that was determined after the guard was raised, or by a
person who declares that this database knows every published segment. If a partition of the metadata topic began above
offset 0 when its reading began, the deleted records cannot be read, so only a person can clear the guard.
"""

from sqlalchemy import Connection, delete, select

from include.tiering.database.schema import active_guards
from include.tiering.database.transactions import upsert
from include.tiering.model.ownership import UNREAD_GUARD


def raise_unread(connection: Connection, cluster_id: str, sentence: str, now_ms: int) -> None:
    """Raise the guard, or raise it again with a later time; `sentence` says what happened to the database."""
    values = {
        "cluster_id": cluster_id,
        "guard": UNREAD_GUARD,
        "run_id": "",
        "sentence": sentence,
        "memory_ms": None,
        "raised_at_ms": now_ms,
    }
    upsert(connection, active_guards, values)


def raised_unread_ms(connection: Connection, cluster_id: str) -> int | None:
    """Return when the guard was raised last, by the database's clock; None if it is not active."""
    guard = active_guards.c
    query = select(guard.raised_at_ms).where(guard.cluster_id == cluster_id, guard.guard == UNREAD_GUARD)
    return connection.execute(query).scalar_one_or_none()


def clear_unread(connection: Connection, cluster_id: str) -> None:
    """Clear the guard."""
    guard = active_guards.c
    connection.execute(delete(active_guards).where(guard.cluster_id == cluster_id, guard.guard == UNREAD_GUARD))
