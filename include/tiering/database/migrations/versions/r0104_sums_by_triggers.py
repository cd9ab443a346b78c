"""The size of the FINISHED segments of each partition, which the database itself keeps, whoever changes the rows.

The triggers run in the transaction of the change, for any program and any person. `SqlSelectedSegments.counters_agree`
compares their sum with the platform's counter before anything is deleted by size.
"""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "r0104"
down_revision = "r0103"

_ADD: Final = """
    UPDATE partitions SET finished_bytes = finished_bytes + NEW.size_bytes
    WHERE cluster_id = NEW.cluster_id AND topic_id = NEW.topic_id AND partition = NEW.partition AND NEW.state = 1;
"""
_SUBTRACT: Final = """
    UPDATE partitions SET finished_bytes = finished_bytes - OLD.size_bytes
    WHERE cluster_id = OLD.cluster_id AND topic_id = OLD.topic_id AND partition = OLD.partition AND OLD.state = 1;
"""
_ADD_UP: Final = """
    UPDATE partitions SET finished_bytes = (
        SELECT coalesce(sum(size_bytes), 0) FROM segments
        WHERE segments.cluster_id = partitions.cluster_id AND segments.topic_id = partitions.topic_id
            AND segments.partition = partitions.partition AND segments.state = 1
    )
"""
_ADD_ALL: Final = """
    UPDATE partitions SET finished_bytes = finished_bytes + total.size_bytes
    FROM (
        SELECT cluster_id, topic_id, partition, sum(size_bytes) AS size_bytes
        FROM changed WHERE state = 1 GROUP BY cluster_id, topic_id, partition
    ) AS total
    WHERE partitions.cluster_id = total.cluster_id AND partitions.topic_id = total.topic_id
        AND partitions.partition = total.partition;
"""
_SUBTRACT_ALL: Final = _ADD_ALL.replace("+", "-")
_SET_TO_0: Final = """
    UPDATE partitions SET finished_bytes = 0;
"""
_UPDATE: Final = "UPDATE OF cluster_id, topic_id, partition, state, size_bytes"
_IS_CONCERNED: Final = "OLD.state = 1 OR NEW.state = 1"
_ON_SQLITE: Final = (
    ("inserted", "INSERT", "NEW.state = 1", _ADD),
    ("changed", _UPDATE, _IS_CONCERNED, _SUBTRACT + _ADD),
    ("deleted", "DELETE", "OLD.state = 1", _SUBTRACT),
)
# PostgreSQL keeps each version of a row until the transaction ends: to change the row of a partition once for each of
# many segments takes a time that grows with the square of their number (16,000: 7 s). So INSERT, DELETE and TRUNCATE,
# which may be of many rows, have a trigger for each statement. UPDATE has a trigger for each row: the platform updates
# at most 1,000 rows in a transaction, and only such a trigger can leave out updates of other columns.
_ON_POSTGRESQL: Final = (
    ("inserted", "INSERT", "REFERENCING NEW TABLE AS changed FOR EACH STATEMENT", _ADD_ALL),
    ("changed", _UPDATE, f"FOR EACH ROW WHEN ({_IS_CONCERNED})", _SUBTRACT + _ADD),
    ("deleted", "DELETE", "REFERENCING OLD TABLE AS changed FOR EACH STATEMENT", _SUBTRACT_ALL),
    ("truncated", "TRUNCATE", "FOR EACH STATEMENT", _SET_TO_0),
)


def upgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    if is_postgresql:
        # With millions of segments the sums take longer than any other statement may.
        op.execute("SET LOCAL statement_timeout = 0")
    comment = "of FINISHED segments, added up by triggers on segments"
    op.add_column(
        "partitions", sa.Column("finished_bytes", sa.BigInteger(), nullable=False, server_default="0", comment=comment)
    )
    if is_postgresql:
        for name, event, each, statements in _ON_POSTGRESQL:
            _create_on_postgresql(name, event, each, statements)
    else:
        for name, event, condition, statements in _ON_SQLITE:
            op.execute(
                f"CREATE TRIGGER segments_{name} AFTER {event} ON segments WHEN {condition} BEGIN{statements}END"
            )
    # After the triggers were created, which waits for all writers and keeps them out until the end.
    op.execute(_ADD_UP)


def _create_on_postgresql(name: str, event: str, each: str, statements: str) -> None:
    # The search path is set, because whoever writes to the table may have another one.
    op.execute(
        f"CREATE FUNCTION segments_{name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT"
        f" AS $$ BEGIN{statements}    RETURN NULL; END $$"
    )
    op.execute(f"CREATE TRIGGER segments_{name} AFTER {event} ON segments {each} EXECUTE FUNCTION segments_{name}()")
