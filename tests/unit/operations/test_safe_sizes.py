"""What of the remote log counts as safe."""

from include.tiering.model.segments import Verdict, VerdictTotal
from include.tiering.presentation import as_text
from include.tiering.sizes.report import SizeReport, present_sizes
from tests.doubles import sample_values as sample

DAY_MS = 24 * 60 * 60 * 1000
PASSED = VerdictTotal(Verdict.PASSED, 2, 4096, 5 * DAY_MS)
EXPIRED = VerdictTotal(Verdict.EXPIRED, 1, 1024, 91 * DAY_MS)
NOTHING = VerdictTotal(Verdict.FAILED, 0, 0, None)
UNVERIFIED = VerdictTotal(Verdict.NONE, 3, 512, None)


def test_only_what_passed_is_safe() -> None:
    report = SizeReport([sample.partition_size()], verdicts=[UNVERIFIED, PASSED, NOTHING, EXPIRED])
    presented = present_sizes(report)
    document = presented.document()
    assert document["safe_bytes"] == 4096
    assert document["verdicts"] == [
        {"verdict": "none", "segments": 3, "bytes": 512},
        {"verdict": "passed", "segments": 2, "bytes": 4096},
        {"verdict": "failed", "segments": 0, "bytes": 0},
        {"verdict": "expired", "segments": 1, "bytes": 1024},
    ]
    assert presented.summary == "1 partition, 2 segments, 5.0 KiB, 4.0 KiB of it safe"
    (_, table) = presented.tables()
    assert [row[0] for row in table.rows] == ["none", "passed", "expired"]
    assert "91d" in as_text(presented)


def test_verdicts_are_no_table_while_all_is_safe_and_unknown_for_some_topics() -> None:
    assert len(present_sizes(SizeReport([sample.partition_size()], verdicts=[PASSED, NOTHING])).tables()) == 1
    document = present_sizes(SizeReport([sample.partition_size()])).document()
    assert "safe_bytes" not in document
