"""The directory of the data docs.

    <root>/<origin>/index.html                list of runs
    <root>/<origin>/<page>/index.html         one run
    <root>/<origin>/<page>/summary.json       the run in numbers
    <root>/<origin>/<page>/results/...        validation results as Great Expectations stores them

    step       done when it is reached                    a crash right after it leaves       cleaned up by
    begun      results of an earlier try removed          an empty directory                  the same run, or age
    judged     results stored                             results without a page              the same run, or age
    published  page, then summary, each put in place      a page that the list lacks          the next publication
    listed     list put in place, old runs removed        old runs                            the next publication

All of it may be removed at any time: verdicts and broken rules are in the platform's database.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.errors import DataDocsError
from include.tiering.verification.data_docs.pages import list_page, run_page
from include.tiering.verification.data_docs.quality_run import PAGE_NAME, QualityRun, checked_origin, page_name
from include.tiering.verification.data_docs.run_summary import RunSummary
from include.tiering.verification.data_docs.stored_results import read_results

_PAGE: Final = "index.html"
_SUMMARY: Final = "summary.json"
_RESULTS: Final = "results"
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class DataDocs:
    """Pages below `root`, of the newest `keep_runs` of each origin that are no older than `keep_days`."""

    root: Path
    keep_runs: int = 200
    keep_days: int = 90

    def begin(self, origin: str, run_id: str) -> Path:
        """An empty directory for the results of this run; what an earlier try of it left is removed.

        Raises:
            ValueError: no origin.
            DataDocsError: the directory cannot be written.
        """
        results = self._directory(origin, run_id) / _RESULTS
        with self._writing():
            if results.exists():
                shutil.rmtree(results)
            results.mkdir(parents=True)
        return results

    def publish(self, run: QualityRun) -> Path:
        """Build the run's page from its findings and the stored results, and the list; returns the page's file.

        Raises:
            DataDocsError: the directory cannot be written.
        """
        directory = self._directory(run.origin, run.run_id)
        with self._writing():
            directory.mkdir(parents=True, exist_ok=True)
            page = _put(directory / _PAGE, run_page(run, read_results(directory / _RESULTS)))
            _put(directory / _SUMMARY, RunSummary.of(run).to_json().encode())
            self._remove_old(run.origin, run.ended_at_ms)
            runs = [(found.name, summary) for found, summary in self._runs(run.origin)]
            _put(directory.parent / _PAGE, list_page(run.origin, runs))
        return page

    def page(self, origin: str, run_id: str) -> Path | None:
        """The page of a run, whatever text its id is; None if it has none."""
        return _file(self._directory(origin, run_id) / _PAGE)

    def page_named(self, origin: str, name: str) -> Path | None:
        """The page in the directory `name`."""
        return _file(self.root / checked_origin(origin) / name / _PAGE) if PAGE_NAME.match(name) else None

    def list_of(self, origin: str) -> Path | None:
        return _file(self.root / checked_origin(origin) / _PAGE)

    def summary(self, origin: str, run_id: str) -> RunSummary | None:
        """None without a page, or with a summary that cannot be read."""
        return _summary(self._directory(origin, run_id))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataDocsError(
                f"the data docs below {self.root} cannot be written: {error.strerror}: {error.filename}; "
                "data_docs.path names another directory"
            ) from error

    def _directory(self, origin: str, run_id: str) -> Path:
        return self.root / checked_origin(origin) / page_name(run_id)

    def _runs(self, origin: str) -> list[tuple[Path, RunSummary]]:
        """Newest first."""
        found = [(each, summary) for each in self._directories(origin) if (summary := _summary(each))]
        return sorted(found, key=lambda run: (-run[1].began_at_ms, run[0].name))

    def _directories(self, origin: str) -> Iterator[Path]:
        with os.scandir(self.root / checked_origin(origin)) as entries:
            for entry in entries:
                if PAGE_NAME.match(entry.name) and entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)

    def _remove_old(self, origin: str, now_ms: int) -> None:
        oldest_ms = now_ms - self.keep_days * _DAY_MS
        kept = {
            directory for directory, summary in self._runs(origin)[: self.keep_runs] if summary.ended_at_ms >= oldest_ms
        }
        for directory in self._directories(origin):
            if directory not in kept and (_summary(directory) or _changed_ms(directory) < oldest_ms):
                shutil.rmtree(directory, ignore_errors=True)


def _put(path: Path, content: bytes) -> Path:
    """Whole or not at all, for whoever reads it meanwhile."""
    stage = path.with_name(f".{path.name}.{os.getpid()}")
    stage.write_bytes(content)
    stage.replace(path)
    return path


def _file(path: Path) -> Path | None:
    return path if path.is_file() and not path.is_symlink() else None


def _summary(directory: Path) -> RunSummary | None:
    try:
        return RunSummary.from_json((directory / _SUMMARY).read_bytes())
    except (OSError, ValueError):
        return None


def _changed_ms(directory: Path) -> int:
    """0 if it is gone."""
    try:
        return int(directory.stat().st_mtime * 1000)
    except OSError:
        return 0
