"""The verb that takes the plan of a removal back; that of an expiration is beside its other verbs."""

from include.tiering.audit.removal_contract import WithdrawnRemovals
from include.tiering.wiring.audit_verbs import AuditVerbs


class WithdrawalVerbs(AuditVerbs):
    """Part of `Tiering`."""

    def withdraw_removals(self, run_id: str, *, author: str) -> WithdrawnRemovals:
        """Decide, for good, that nothing more of a run is removed, whoever works on it now.

        A batch that removes stops before its next group. Repeating it is harmless. A copy of the database may have the
        same plan and its release, so the store is claimed afterwards; the run is withdrawn here even if that cannot be
        done, and the report says so.

        Raises:
            StateConflictError: no such run was planned.
        """
        run = self.removals.withdraw(run_id, author=author)
        return WithdrawnRemovals(run, tuple(self.removals.items(run_id)), self.claim_store_if_possible())
