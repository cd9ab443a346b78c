"""What audits have said of the database, before anything is deleted by what it says."""

from include.tiering.audit.record_contract import AuditStore
from include.tiering.errors import DatabaseSetBackError
from include.tiering.units import format_utc


class StandingGuards:
    """The guards that an audit raised and no later one has cleared."""

    def __init__(self, audits: AuditStore) -> None:
        self._audits = audits

    def objection(self) -> str | None:
        """Why nothing may expire, in a sentence, since an audit found that the database was set back; None if no guard
        of an audit stands."""
        standing = self._audits.standing_guards()
        if not standing:
            return None
        first = min(standing, key=lambda guard: guard.raised_at_ms)
        return (
            f"nothing expires while the guard {first.guard} stands, since {format_utc(first.raised_at_ms)}: an audit"
            f" found that {first.sentence}. Set its dynamic configs as they were, adopt or accept what it lost, and the"
            " next ./tiering audit clears it; ./tiering take-over-store shows what it would delete by (docs/runbook.md,"
            ' "The database was restored from a backup")'
        )

    def require_expiration_allowed(self) -> None:
        """Raises DatabaseSetBackError while a guard of an audit stands."""
        if (objection := self.objection()) is not None:
            raise DatabaseSetBackError(objection)
