"""The database's clock: what leases, verdicts and tombstones are dated by, so that no worker's clock matters.

PostgreSQL: the server's. SQLite: that of the one host on which all its users run.
"""

import time
from collections.abc import Callable

from sqlalchemy import BigInteger, Connection, cast, extract, func, select

NowMs = Callable[[Connection], int]


def database_now_ms(connection: Connection) -> int:
    """UTC milliseconds now, not at the start of the transaction."""
    if connection.dialect.name == "sqlite":
        return time.time_ns() // 1_000_000
    milliseconds = func.floor(extract("epoch", func.clock_timestamp()) * 1000)
    return connection.execute(select(cast(milliseconds, BigInteger))).scalar_one()
