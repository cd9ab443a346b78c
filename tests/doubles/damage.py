"""Seeded damage to a log directory: what disks, half-finished copies, operators and attackers leave behind."""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HOSTILE_NAMES = (
    "orders\n0-0",
    "\x1b[31mred-0",
    "..-0",
    "-0",
    "orders-",
    "orders-+1",
    "orders-00",
    "orders-99999999999",
    "or ders-0",
    "x" * 250 + "-0",
    "y" * 255,
    "tab\t-3",
    "caf\u00e9-0",
    "\u202eorders-0",
    os.fsdecode(b"\xff\xfe-0"),
    "lost+found",
)
"""Directory names that no broker writes."""

HOSTILE_FILES = (
    "\x1b]0;title\x07.log",
    "123.log",
    "99999999999999999999.log",
    "0000000000000000000x.index",
    "new\nline",
    "00000000000000000000 .timeindex",
    os.fsdecode(b"\xff.snapshot"),
    "\uff10" * 20 + ".log",
)
"""File names that no broker writes into a partition directory."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done, in words; `partition` is the directory that it concerns, None if it is the whole log dir."""

    what: str
    partition: str | None


def damage(log_dir: Path, seed: int) -> Damage:
    """One thing goes wrong. The same seed does the same to the same directory."""
    rng = random.Random(seed)
    partitions = sorted(path for path in log_dir.iterdir() if path.is_dir() and not path.name.startswith("__"))
    if rng.random() < 0.15:
        return Damage(_damage_root(log_dir, rng), None)
    victim = rng.choice(partitions)
    return Damage(rng.choice(_PARTITION_DAMAGE)(victim, rng), victim.name)


def _file(directory: Path, rng: random.Random, pattern: str = "*") -> Path:
    return rng.choice(sorted(path for path in directory.glob(pattern) if path.is_file()))


def _named(verb: str, path: Path) -> str:
    return f"{verb} {path.parent.name}/{path.name!r}"


def _truncate(directory: Path, rng: random.Random) -> str:
    path = _file(directory, rng)
    size = rng.randrange(max(1, path.stat().st_size))
    os.truncate(path, size)
    return _named(f"truncated to {size}", path)


def _flip(directory: Path, rng: random.Random) -> str:
    path = _file(directory, rng)
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 1, 8])):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return _named("flipped bits of", path)


def _zero_out(directory: Path, rng: random.Random) -> str:
    path = _file(directory, rng)
    size = path.stat().st_size
    start = rng.randrange(size + 1)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(min(size - start, rng.choice([16, 512, 4096]))))
    return _named(f"zeros from {start} in", path)


def _empty(directory: Path, rng: random.Random) -> str:
    path = _file(directory, rng)
    path.write_bytes(b"")
    return _named("emptied", path)


def _append(directory: Path, rng: random.Random) -> str:
    path = _file(directory, rng)
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randrange(1, 300)))
    return _named("garbage behind", path)


def _swap(directory: Path, rng: random.Random) -> str:
    kind = rng.choice(["log", "index", "timeindex", "snapshot"])
    candidates = sorted(directory.glob(f"*.{kind}")) or sorted(directory.glob("*.log"))
    first, second = rng.choice(candidates), _file(directory, rng)
    aside = directory / "aside"
    first.rename(aside)
    if second != first:
        second.rename(first)
    aside.rename(second)
    return f"{_named('swapped', first)} and {second.name!r}"


def _delete(directory: Path, rng: random.Random) -> str:
    path = _file(directory, rng)
    path.unlink()
    return _named("deleted", path)


def _replace_by_link(directory: Path, rng: random.Random) -> str:
    path = _file(directory, rng)
    path.unlink()
    path.symlink_to(rng.choice(["/etc/passwd", "/nowhere", path.name, "../meta.properties", "/dev/zero"]))
    return _named("symbolic link for", path)


def _replace_by_other(directory: Path, rng: random.Random) -> str:
    path = _file(directory, rng)
    path.unlink()
    if rng.random() < 0.5:
        os.mkfifo(path)
        return _named("pipe for", path)
    path.mkdir()
    return _named("directory for", path)


def _blow_up(directory: Path, rng: random.Random) -> str:
    """A file of a terabyte, all hole: whoever reads it whole, or believes its size, is lost."""
    path = _file(directory, rng, rng.choice(["*.index", "*.timeindex", "*.snapshot", "*checkpoint", "*.metadata"]))
    os.truncate(path, 1 << 40)
    return _named("a terabyte of", path)


def _add_hostile_file(directory: Path, rng: random.Random) -> str:
    path = directory / rng.choice(HOSTILE_FILES)
    path.write_bytes(rng.randbytes(100))
    return _named("added", path)


def _link_partition(directory: Path, rng: random.Random) -> str:
    aside = directory.parent.parent / "elsewhere"
    shutil.move(directory, aside)
    directory.symlink_to(rng.choice([aside, Path("/etc"), Path("/nowhere")]))
    return f"symbolic link for {directory.name}"


def _partition_is_a_file(directory: Path, rng: random.Random) -> str:
    shutil.rmtree(directory)
    if rng.random() < 0.5:
        os.mkfifo(directory)
    else:
        directory.write_bytes(b"")
    return f"no directory: {directory.name}"


def _empty_partition(directory: Path, rng: random.Random) -> str:
    for path in directory.iterdir():
        if path.name != "partition.metadata" or rng.random() < 0.5:
            path.unlink()
    return f"nothing left in {directory.name}"


def _damage_root(log_dir: Path, rng: random.Random) -> str:
    kind = rng.randrange(4)
    if kind == 0:
        name = rng.choice(HOSTILE_NAMES)
        (log_dir / name).mkdir()
        return f"added {name!r}"
    if kind == 1:
        return _flip(log_dir / "__cluster_metadata-0", rng)
    return rng.choice([_truncate, _flip, _empty, _delete, _replace_by_link, _replace_by_other])(log_dir, rng)


_PARTITION_DAMAGE: tuple[Callable[[Path, random.Random], str], ...] = (
    _truncate,
    _truncate,
    _flip,
    _flip,
    _flip,
    _zero_out,
    _empty,
    _append,
    _swap,
    _delete,
    _replace_by_link,
    _replace_by_other,
    _blow_up,
    _add_hostile_file,
    _link_partition,
    _partition_is_a_file,
    _empty_partition,
)
