"""One kind of damage, and who tells of it."""

from collections.abc import Callable
from typing import Final

from include.tiering.model.segments import Depth
from include.tiering.verification.rules import RULES, Rule
from include.tiering.verification.suites import PARTITION_RULES, STORED_RULES
from tests.doubles.damages.picture import Picture

SHALLOW, DEEP, ANY = Depth.SHALLOW, Depth.DEEP, None

RULES_BY_ID: Final[dict[str, Rule]] = {rule.rule_id: rule for rule in (*RULES, *PARTITION_RULES, *STORED_RULES)}
_OF_SIZES: Final = {rule.rule_id for rule in STORED_RULES}


class Damage:
    """`do` changes a picture of the store, and of the metadata where they follow.

    `rules` are ids of rules and kinds of an audit's findings: the most telling one first, others may come with them.
    `depth` is the smallest at which they are found; with ANY each segment is right by itself, and rows and listings
    tell. Without rules nothing tells of it.

    With `recorded` the metadata has the checksum of the damaged log, as if the source had been so when it was copied,
    or whoever did it could write there, too: the log's own bytes must show it. Without, the source's stays there.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[Picture], None],
        *rules: str,
        depth: Depth | None = SHALLOW,
        recorded: bool = False,
    ) -> None:
        self.name = name
        self.do = do
        self.rules = rules
        self.depth = depth
        self.recorded = recorded

    @property
    def levels(self) -> tuple[str, ...]:
        """Of the rules, in their order, each once."""
        return tuple(dict.fromkeys(level_of(rule) for rule in self.rules))

    @property
    def is_told_beside(self) -> bool:
        """Whether it takes more than measures of segments to find all `rules`."""
        return not set(self.rules) <= {rule.rule_id for rule in RULES}

    @property
    def against_the_source(self) -> "Damage":
        """The same, where the metadata keeps the checksum of the source."""
        return Damage(self.name, self.do, *self.rules, depth=self.depth)

    @property
    def where_the_record_follows(self) -> "Damage":
        """The same, in the metadata too: nothing is left to tell of it."""
        return Damage(self.name, self.do, depth=ANY, recorded=True)


def level_of(rule_id: str) -> str:
    """What a rule, or an audit, speaks about."""
    if rule_id not in RULES_BY_ID:
        return "audit"
    return "size" if rule_id in _OF_SIZES else str(RULES_BY_ID[rule_id].level)
