"""A run in numbers and first lines: what lists of runs and notes are made of. It is kept as JSON beside the page."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from include.tiering.verification.data_docs.quality_run import QualityRun, SegmentLine, failed_lines, warned_lines

MAX_FIRST_LINES: Final = 50
MAX_NAMED_RULES: Final = 3


@dataclass(frozen=True, slots=True)
class FirstLine:
    """A segment that is not right, in one line. `rules` are ids, `message` is that of the first."""

    partition: str
    segment_id: str
    start_offset: int
    rules: tuple[str, ...]
    message: str

    @classmethod
    def of(cls, line: SegmentLine) -> Self:
        rules = tuple(finding.rule for finding in line.findings)
        partition = f"{line.topic}-{line.partition}"
        return cls(partition, line.segment_id, line.start_offset, rules, line.findings[0].message)

    def __str__(self) -> str:
        return f"{self.partition} from offset {self.start_offset}, segment {self.segment_id}: {self.text}"

    @property
    def text(self) -> str:
        return f"{self.ids}: {self.message}"

    @property
    def ids(self) -> str:
        """``"Q101, Q102, Q105 and 14 more"``"""
        named = ", ".join(self.rules[:MAX_NAMED_RULES])
        more = len(self.rules) - MAX_NAMED_RULES
        return f"{named} and {more} more" if more > 0 else named


@dataclass(frozen=True, slots=True)
class RunSummary:
    """See `QualityRun`. `warned_segments` did not fail; `first_lines` are the first that failed, `MAX_FIRST_LINES`."""

    origin: str
    run_id: str
    depth: str
    began_at_ms: int
    ended_at_ms: int
    segments: int
    failed_segments: int
    warned_segments: int
    remarks: int
    first_lines: tuple[FirstLine, ...]

    @classmethod
    def of(cls, run: QualityRun) -> Self:
        failed = failed_lines(run)
        return cls(
            run.origin,
            run.run_id,
            run.depth,
            run.began_at_ms,
            run.ended_at_ms,
            run.segments,
            failed_segments=len(failed),
            warned_segments=len(warned_lines(run)),
            remarks=len(run.remarks),
            first_lines=tuple(FirstLine.of(line) for line in failed[:MAX_FIRST_LINES]),
        )

    @property
    def is_right(self) -> bool:
        return not self.failed_segments and not self.remarks

    @property
    def sentence(self) -> str:
        """``"2 of 14 segments failed, 1 with a warning"``"""
        if self.failed_segments:
            said = f"{self.failed_segments:,} of {self.segments:,} segments failed"
        else:
            said = f"All {self.segments:,} segments passed" if self.segments else "No segment was judged"
        if self.remarks:
            said += f", {self.remarks:,} not copied"
        return said + (f", {self.warned_segments:,} with warnings" if self.warned_segments else "")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Raises ValueError."""
        try:
            content: dict[str, Any] = json.loads(text)
            lines = content.pop("first_lines")
            return cls(
                **content, first_lines=tuple(FirstLine(**{**one, "rules": tuple(one["rules"])}) for one in lines)
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no summary of a run: {error}") from error
