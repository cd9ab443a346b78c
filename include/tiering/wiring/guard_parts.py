"""What audits have said of the database, for whoever deletes by what it says."""

from functools import cached_property

from include.tiering.audit.record_contract import AuditStore
from include.tiering.errors import DatabaseSetBackError
from include.tiering.units import format_utc
from include.tiering.wiring.parts import Parts
from include.tiering.work.sql_audits import SqlAuditStore


class GuardParts(Parts):
    """Part of `Tiering`."""

    @cached_property
    def audits(self) -> AuditStore:
        return SqlAuditStore(self.engine, self.cluster_id)

    def objection_to_expire(self) -> str | None:
        """Why nothing may expire, in a sentence, since an audit found that the database was set back; None if no guard
        of an audit stands."""
        standing = self.audits.standing_guards()
        if not standing:
            return None
        first = min(standing, key=lambda one: one.raised_at_ms)
        return (
            f"nothing expires while the guard {first.guard} stands, since {format_utc(first.raised_at_ms)}: an audit"
            f" found that {first.sentence}. Set its dynamic configs as they were, adopt or accept what it lost, and the"
            " next ./tiering audit clears it; ./tiering take-over-store shows what it would delete by (docs/runbook.md,"
            ' "The database was restored from a backup")'
        )

    def require_expiration_allowed(self) -> None:
        """Raises DatabaseSetBackError while a guard of an audit stands."""
        if (objection := self.objection_to_expire()) is not None:
            raise DatabaseSetBackError(objection)
