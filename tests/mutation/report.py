"""What a run came to: a document, and the same as text."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tests.mutation.trial import Outcome, Result


@dataclass(frozen=True, slots=True)
class Report:
    """Results in the order of files and lines. `possible`: among so many mutants they were drawn, by `seed`."""

    results: Sequence[Result]
    possible: int
    seed: int
    seconds: float

    @property
    def noticed(self) -> int:
        return len(self._of(Outcome.NOTICED))

    @property
    def survived(self) -> int:
        return len(self._of(Outcome.SURVIVED))

    @property
    def score(self) -> float | None:
        """Share of the noticed among those that a test runs; None if no test runs any."""
        return _score(Counter(result.outcome for result in self.results))

    @property
    def standard_error(self) -> float | None:
        """What chance alone does to the score."""
        run = self.noticed + self.survived
        return None if self.score is None else math.sqrt(self.score * (1 - self.score) / run)

    def document(self) -> dict[str, Any]:
        """JSON."""
        return {
            "seed": self.seed,
            "possible": self.possible,
            "drawn": len(self.results),
            **{outcome.name.lower(): len(self._of(outcome)) for outcome in Outcome},
            "score": None if self.score is None else round(self.score, 4),
            "standard_error": None if self.standard_error is None else round(self.standard_error, 4),
            "seconds": round(self.seconds, 1),
            "mutants": [_mutant(result) for result in self.results],
        }

    def text(self) -> str:
        """For a person: what nobody noticed, line by line, then the numbers."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for outcome, title in ((Outcome.SURVIVED, "survived"), (Outcome.NOT_RUN, "on lines that no fast test runs")):
            if found := self._of(outcome):
                yield f"{title}:"
                yield from (f"  {result.mutant}" for result in found)
                yield ""
        yield from _table(self._by_package())
        yield ""
        yield (
            f"{len(self.results)} of {self.possible:,} possible mutants, seed {self.seed}: {self.noticed} noticed,"
            f" {self.survived} survived, {len(self._of(Outcome.NOT_RUN))} not run, in {self.seconds:.0f} s"
        )
        if self.score is not None and self.standard_error is not None:
            chance = f"{100 * self.standard_error:.1f} points"
            yield f"score {_percent(self.score)}, give or take {chance} (one standard error)"

    def _of(self, outcome: Outcome) -> list[Result]:
        return [result for result in self.results if result.outcome is outcome]

    def _by_package(self) -> dict[str, Counter[Outcome]]:
        found: dict[str, Counter[Outcome]] = {}
        for result in self.results:
            found.setdefault(_package(result.mutant.path), Counter())[result.outcome] += 1
        return dict(sorted(found.items()))


def _mutant(result: Result) -> dict[str, Any]:
    mutant = result.mutant
    return {
        "file": mutant.path,
        "line": mutant.line,
        "operator": mutant.operator,
        "before": mutant.before,
        "after": mutant.after,
        "text": mutant.text.strip(),
        "outcome": str(result.outcome),
        "noticed_by": result.noticed_by,
        "tests": result.tests,
        "seconds": round(result.seconds, 1),
    }


def _table(packages: Mapping[str, Counter[Outcome]]) -> Iterator[str]:
    width = max(map(len, ("package", *packages)))
    yield f"{'package':{width}}  noticed  survived  not run  score"
    for package, outcomes in packages.items():
        noticed, survived, not_run = (outcomes[outcome] for outcome in Outcome)
        score = _score(outcomes)
        shown = "" if score is None else _percent(score)
        yield f"{package:{width}}  {noticed:7}  {survived:8}  {not_run:7}  {shown:>6}".rstrip()


def _score(outcomes: Counter[Outcome]) -> float | None:
    run = outcomes[Outcome.NOTICED] + outcomes[Outcome.SURVIVED]
    return outcomes[Outcome.NOTICED] / run if run else None


def _package(path: str) -> str:
    """The folder below the library's: of `include/tiering/model/ids.py` it is `model`."""
    *folders, file = PurePath(path).parts
    return folders[2] if len(folders) > 2 else PurePath(file).stem


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
