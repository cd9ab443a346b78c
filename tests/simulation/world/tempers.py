"""What a schedule is prone to. Each seed switches some kinds of trouble off and others up, so that rare combinations
get schedules of their own instead of drowning in noise.
"""

from dataclasses import dataclass

from tests.simulation.kernel.choices import Choices, Menu
from tests.simulation.kernel.scheduler import Verdict

_LEVELS = Menu((0, 45), (1, 25), (3, 20), (8, 10))
_SCALE = 1_000


@dataclass(frozen=True, slots=True)
class Tempers:
    """Levels from 0 (never) to 8 (all the time).

    Mostly reads of the database are no scheduling points: whatever may come between a read and the write that follows
    can come before that write, and a schedule gets further with the same number of steps.
    """

    database: int
    store: int
    kills: int
    stalls: int
    source: int
    quotas: int
    store_damages: bool
    store_refuses: bool
    store_confirms: bool
    reads_are_points: bool
    keeps_progress: bool
    loses_power: bool
    judges: int
    gates: bool
    audits: bool
    by_size: bool
    has_pools: bool
    lists_lag: bool
    brokers: int
    operators: int

    @classmethod
    def drawn(cls, choices: Choices) -> "Tempers":
        def level() -> int:
            found = choices.pick(_LEVELS)
            assert isinstance(found, int)
            return found

        return cls(
            database=level(),
            store=level(),
            kills=level(),
            stalls=level(),
            source=level(),
            quotas=level(),
            store_damages=choices.number(4) == 1,
            store_refuses=choices.number(4) == 1,
            store_confirms=choices.number(2) == 0,
            reads_are_points=choices.number(4) == 1,
            keeps_progress=choices.number(8) == 1,
            loses_power=choices.number(6) == 1,
            judges=level() if choices.number(3) == 1 else 0,
            gates=choices.number(3) == 1,
            audits=choices.number(3) == 1,
            by_size=choices.number(5) == 1,
            has_pools=choices.number(6) == 1,
            lists_lag=choices.number(6) == 1,
            brokers=level(),
            operators=level(),
        )

    def menus(self) -> dict[str, Menu]:
        """What may become of a call, by its kind."""
        kill, stall = 4 * self.kills, 3 * self.stalls
        end = ((Verdict.KILL_BEFORE, kill), (Verdict.STALL_BEFORE, stall))
        after = ((Verdict.KILL_AFTER, kill), (Verdict.STALL_AFTER, stall))

        def menu(*options: tuple[Verdict, int]) -> Menu:
            return Menu((Verdict.OK, _SCALE), *options)

        def failing(level: int, *, half: bool = False) -> tuple[tuple[Verdict, int], ...]:
            middle = 8 * level if half else 0
            return (Verdict.FAIL_BEFORE, 8 * level), (Verdict.FAIL_MIDDLE, middle), (Verdict.FAIL_AFTER, 10 * level)

        db, store, source = self.database, self.store, self.source
        return {
            "sql read": menu((Verdict.FAIL_BEFORE, 6 * db), *end),
            "sql write": menu(*failing(db, half=True), *end, *after),
            "store write": menu((Verdict.FAIL_BEFORE, 8 * store), *end),
            "put": menu(*failing(store), *end, *after),
            "delete": menu(*failing(store, half=True), *end, *after),
            "store read": menu((Verdict.FAIL_BEFORE, 8 * store), *end),
            "source": menu((Verdict.FAIL_BEFORE, 6 * source), *end),
            "step": menu((Verdict.KILL_BEFORE, 2 * kill), (Verdict.STALL_BEFORE, stall)),
            "take": menu(*end),
            "sleep": menu(*end),
            "admit": menu((Verdict.FAIL_BEFORE, 20 * self.quotas), *end),
        }
