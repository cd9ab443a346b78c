"""A database that an audit found set back: when the faults stop, a person clears the guard, and things expire again."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import FindingState
from include.tiering.audit.store import active_guards_of
from tests.simulation.world.sides import CLUSTER_ID

if TYPE_CHECKING:
    from tests.simulation.kernel.scheduler import Process
    from tests.simulation.world.world import World

_ROUNDS = 6
_COMPLETE = (FindingKind.ADOPTABLE, FindingKind.DUPLICATE)


class GuardClosing:
    """Accepts what the database has forgotten, as who does not want to adopt it."""

    def __init__(self, world: "World", until_idle: Callable[[str], bool]) -> None:
        self._world = world
        self._until_idle = until_idle

    def run(self) -> bool:
        """Whether nothing broke on the way."""
        what = "a guard is cleared when all is accepted"
        for number in range(_ROUNDS):
            if not self._stands():
                return True
            self._world.start("clearer", partial(_clear, number=number))
            if not self._until_idle(what):
                return False
        if self._stands():
            self._world.watch.broken(what, f"not after {_ROUNDS} audits")
            return False
        return True

    def _stands(self) -> bool:
        with self._world.side.db.engine.connect() as connection:
            return bool(active_guards_of(connection, CLUSTER_ID))


def _clear(app: Any, _process: "Process", number: int) -> None:
    app.audit.run(f"before-{number}")
    complete = [one for one in app.audit.findings(f"before-{number}") if one.finding.kind in _COMPLETE]
    app.adapters.stores.audits.accept(
        [one.finding_id for one in complete if one.state is FindingState.OPEN], author="operator"
    )
    app.audit.run(f"after-{number}")
