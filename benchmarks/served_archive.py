"""A deployment whose remote segments, copies of a generated log directory, are served."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.generated_log_dir import TOPIC, Shape, write_log_dir
from include.tiering.app import App, open_app
from include.tiering.model.segments import Verdict
from include.tiering.settings import load_settings
from tests.doubles.quotas import NoQuotas


def environment_of(directory: Path) -> dict[str, str]:
    """Settings of a deployment that has log directory, SQLite database and file store below `directory`."""
    return {
        "HOME": str(directory),
        "TIERING_LOG_DIRS": f"1:{directory / 'broker'}",
        "TIERING_TOPICS__INCLUDE": TOPIC,
        "TIERING_METADATA__URL": f"sqlite:///{directory / 'metadata.sqlite'}",
        "TIERING_REMOTE_STORAGE__URL": f"file://{directory / 'store'}",
    }


@contextmanager
def served_archive(
    directory: Path, shape: Shape, environment: Mapping[str, str] | None = None, *, has_quotas: bool = False
) -> Iterator[App]:
    """Generate a log directory, copy it, and let every copy count as verified.

    Args:
        directory: an empty directory.
        shape: of what is generated.
        environment: settings; those of `environment_of` if none are given.
        has_quotas: whether the quotas of the database are in force; else there are none.
    """
    write_log_dir(directory / "broker", shape)
    settings = load_settings(environ=environment_of(directory) if environment is None else environment)
    with open_app(settings) if has_quotas else open_app(settings, quotas=NoQuotas()) as app:
        app.set_up.migrate()
        app.copying.plan("bench")
        for segment in app.copying.run_batch("bench", "bench/0").copied:
            app.adapters.stores.metadata.record_verdict(segment.segment_id, Verdict.PASSED)
        yield app
