"""The sides of a world, and how often something happens in it."""

from dataclasses import dataclass
from typing import Final

from include.tiering.configs.sql_configs import SqlConfigStore, SqlPoolMirror
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.model.segments import Uuid
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.simulation.kernel.choices import Choices, Menu
from tests.simulation.kernel.scheduler import Scheduler, Verdict
from tests.simulation.world.database import Database
from tests.simulation.world.focus import Focus, drawn_focus
from tests.simulation.world.records import Memory

# A database with what a person asks and changes there: the platform's own, and at times a copy of it that goes on
# beside it.

CLUSTER_ID: Final = "simulated-cluster"
_FINISHED_IDS: Final = "SELECT segment_id FROM segments WHERE state = 1"


class Side:
    """One database of a world."""

    def __init__(self, name: str, db: Database, scheduler: Scheduler) -> None:
        self.name = name
        self.db = db
        self.memory = Memory(db)
        with_clock = {"now_ms": lambda _connection: scheduler.database_ms}
        self.work = SqlWorkStore(db.engine, CLUSTER_ID, **with_clock)
        self.metadata = SqlRemoteLogMetadata(db.engine, CLUSTER_ID, **with_clock)
        self.registry = SqlTopicRegistry(db.engine, CLUSTER_ID, **with_clock)
        self.configs = SqlConfigStore(db.engine, CLUSTER_ID, **with_clock)
        self.pools = SqlPoolMirror(db.engine, CLUSTER_ID, **with_clock)
        self.handovers = SqlHandoverStore(db.engine, CLUSTER_ID, **with_clock)

    def finished_ids(self) -> set[Uuid]:
        """Of the segments that it knows to be in the store."""
        return {Uuid.parse(segment_id) for (segment_id,) in self.db.rows(_FINISHED_IDS)}

    def __str__(self) -> str:
        return self.name


# What a schedule is prone to. Each seed switches some kinds of trouble off and others up, so that rare combinations
# get schedules of their own instead of drowning in noise.

_LEVELS = Menu((0, 45), (1, 25), (3, 20), (8, 10))
_SCALE = 1_000


@dataclass(frozen=True, slots=True)
class Tempers:
    """Levels from 0 (never) to 8 (all the time). `focus` is what the schedule is about; whoever makes the call
    `slow_point` may wait there for a while.

    Mostly reads of the database are no scheduling points: whatever may come between a read and the write that follows
    can come before that write, and a schedule gets further with the same number of steps.
    """

    focus: Focus
    slow_point: str
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
    verdicts: int
    verifications: bool
    audits: bool
    by_size: bool
    has_pools: bool
    lists_lag: bool
    brokers: int
    operators: int
    publishes: bool
    hands_over: bool
    mistakes: bool
    """People make mistakes that cost archives."""
    decides: bool
    """A person decides what plans ask about."""
    two_topics: bool
    store_is_directory: bool
    """Else a bucket."""
    forgets_removals: bool
    """What says that a topic was deleted is gone before anybody reads it."""

    @classmethod
    def drawn(cls, choices: Choices) -> "Tempers":
        focus = drawn_focus(choices)

        def level(of: str) -> int:
            found = choices.pick(_LEVELS)
            assert isinstance(found, int)
            return focus.temper(of, found)

        def is_so(of: str, one_in: int) -> bool:
            return bool(focus.temper(of, int(choices.number(one_in) == 1)))

        return cls(
            focus=focus,
            slow_point=focus.slow_point(choices),
            database=level("database"),
            store=level("store"),
            kills=level("kills"),
            stalls=level("stalls"),
            source=level("source"),
            quotas=level("quotas"),
            store_damages=is_so("store_damages", 4),
            store_refuses=is_so("store_refuses", 4),
            store_confirms=choices.number(2) == 0,
            reads_are_points=is_so("reads_are_points", 4),
            keeps_progress=is_so("keeps_progress", 8),
            loses_power=is_so("loses_power", 6),
            verdicts=level("verdicts") if choices.number(3) == 1 else focus.temper("verdicts", 0),
            verifications=is_so("verifications", 3),
            audits=is_so("audits", 3),
            by_size=is_so("by_size", 5),
            has_pools=is_so("has_pools", 6),
            lists_lag=is_so("lists_lag", 6),
            brokers=level("brokers"),
            operators=level("operators"),
            publishes=bool(focus.temper("publishes", 0)),
            hands_over=bool(focus.temper("hands_over", 0)),
            mistakes=bool(focus.temper("mistakes", 0)),
            decides=bool(focus.temper("decides", 0)),
            two_topics=bool(focus.temper("two_topics", 0)) and choices.number(3) != 0,
            store_is_directory=bool(focus.temper("mistakes", 0)) and choices.number(2) == 1,
            forgets_removals=bool(focus.temper("mistakes", 0)) and choices.number(2) == 1,
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
            "brokers read": menu((Verdict.FAIL_BEFORE, 4 * source), *end),
            "brokers write": menu(*failing(source), *end, *after),
            "append": menu(*failing(source, half=True), (Verdict.KILL_BEFORE, kill), *after),
            "admit": menu((Verdict.FAIL_BEFORE, 20 * self.quotas), *end),
        }
