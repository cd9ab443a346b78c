"""Where a SQLite file may lie."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from include.tiering.database.engine import filesystem_type, is_network_type, open_engine, prepare_database_file
from include.tiering.errors import SettingError

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:20 / /proc rw - proc proc rw
30 21 0:40 / /mnt/share rw,relatime - nfs4 server:/export rw,vers=4.2
31 30 8:2 / /mnt/share/local rw,relatime - xfs /dev/sdb1 rw
32 21 0:41 / /mnt/with\\040space rw - cifs //server/share rw
33 21 0:42 / /home/me/remote rw shared:5 master:1 - fuse.sshfs me@host: rw
34 21 8:3 / /over rw - ext4 /dev/sdc1 rw
35 21 0:43 / /over rw - nfs server:/over rw
not a mount line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/tiering.db", "ext4"),
        ("/mnt/share/tiering.db", "nfs4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/shared/tiering.db", "ext4"),
        ("/mnt/share/local/tiering.db", "xfs"),
        ("/mnt/with space/tiering.db", "cifs"),
        ("/home/me/remote/a/b/c.db", "fuse.sshfs"),
        ("/over/tiering.db", "nfs"),
    ],
)
def test_the_deepest_and_last_mount_counts(path: str, kind: str):
    assert filesystem_type(Path(path), MOUNTS) == kind


def test_no_mounts():
    assert filesystem_type(Path("/a"), "") is None


@pytest.mark.parametrize(
    "name", ["nfs", "nfs4", "cifs", "smb3", "fuse", "fuse.sshfs", "fuse.s3fs", "glusterfs", "ceph"]
)
def test_network_types(name: str):
    assert is_network_type(name)


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs"])
def test_local_types(name: str):
    assert not is_network_type(name)


def _mounts(tmp_path: Path, kind: str) -> Path:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 21 0:40 / {os.path.realpath(tmp_path)} rw - {kind} x rw\n"
    )
    return mounts


def test_a_network_file_system_is_refused_before_anything_is_written(tmp_path: Path):
    target = tmp_path / "tiering.db"
    with pytest.raises(SettingError, match=r"nfs4 file system.*local path, or PostgreSQL"):
        prepare_database_file(target, _mounts(tmp_path, "nfs4"))
    assert not target.exists()


def test_a_link_does_not_hide_the_file_system(tmp_path: Path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with pytest.raises(SettingError, match="cifs"):
        prepare_database_file(link / "tiering.db", _mounts(tmp_path, "cifs"))


def test_the_file_is_private_and_its_directory_made(tmp_path: Path):
    target = tmp_path / "new" / "deep" / "tiering.db"
    prepare_database_file(target, _mounts(tmp_path, "ext4"))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700


def test_a_file_that_others_could_read_is_taken_from_them(tmp_path: Path):
    target = tmp_path / "tiering.db"
    target.write_bytes(b"")
    target.chmod(0o666)
    prepare_database_file(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_directory_is_no_database(tmp_path: Path):
    with pytest.raises(SettingError, match=r"metadata\.url"):
        prepare_database_file(tmp_path)


def test_without_mount_information_the_path_is_taken(tmp_path: Path):
    prepare_database_file(tmp_path / "tiering.db", tmp_path / "absent")
    assert (tmp_path / "tiering.db").exists()


def test_a_second_engine_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """Else another process takes itself for the last one when it leaves, and removes the log that we still write to."""
    path = tmp_path / "tiering.db"
    first = open_engine(f"sqlite:///{path}")
    with first.begin() as connection:
        connection.execute(text("CREATE TABLE numbers (number INTEGER)"))
    second = open_engine(f"sqlite:///{path}")
    assert numbers_seen_by_another_process(path) == "0"
    with first.begin() as connection:
        connection.execute(text("INSERT INTO numbers VALUES (1)"))
    assert numbers_seen_by_another_process(path) == "1"
    first.dispose()
    second.dispose()


def numbers_seen_by_another_process(path: Path) -> str:
    query = "SELECT count(*) FROM numbers"
    look = f"import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute({query!r}).fetchone())"
    done = subprocess.run([sys.executable, "-c", look, str(path)], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def test_a_link_to_a_file_that_is_not_there_yet_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    prepare_database_file(tmp_path / "link.db")
    assert stat.S_IMODE((tmp_path / "real.db").stat().st_mode) == 0o600
