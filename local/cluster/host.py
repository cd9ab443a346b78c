"""One service of the compose file as a process: a name, an address and mounts of its own, and no other's files.

A service runs in a mount and a host-name namespace (`unshare`). There /etc/hosts has the names of all services, volumes
and secrets lie where the compose file mounts them, and the directory with all of them is hidden: a Spark worker sees
neither Airflow's home nor another service's secrets. Process ids and the network are the machine's. Every service has
an address of its own in 127.0.0.0/8, so that it can use the port that the compose file names.

Without root, a service also runs in a user namespace, which some distributions do not allow.
"""

import os
import pwd
import random
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from local.cluster.compose import Mount, Service
from local.layout import ROOT
from local.processes import PLATFORM_MARK

IMAGE_ROOT: Final = "/opt/tiering"
"""Where the platform's image has this checkout; a process here uses the checkout itself."""
_NETWORKS: Final = 200
_MOVED: Final = {IMAGE_ROOT: str(ROOT), "/docker-entrypoint-initdb.d": "/srv/docker-entrypoint-initdb.d"}
"""Paths of images that are elsewhere here. A directory at the root of this machine's file system cannot be made."""
_HOSTS: Final = "/etc/hosts"
_UNSHARE: Final = "/usr/bin/unshare"


class ForeignDirectoryError(RuntimeError):
    """A directory is not one that a cluster was started in."""


class NamespaceError(RuntimeError):
    """This machine lets no process have mounts of its own."""


@dataclass(frozen=True, slots=True)
class State:
    """Directories of one cluster: everything that it writes lies below `root`."""

    root: Path

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pid_files(self) -> Path:
        """One JSON file for each process that was started: its pid and when it was born."""
        return self.root / "running"

    @property
    def scripts(self) -> Path:
        return self.root / "scripts"

    @property
    def hosts(self) -> Path:
        return self.root / "hosts"

    @property
    def settings(self) -> Path:
        """`secrets/tiering.toml` with addresses and paths of this machine, for commands outside of the namespaces."""
        return self.root / "tiering.toml"

    @property
    def marker(self) -> Path:
        """A file that says that everything beside it is a cluster's."""
        return self.root / ".tiering-cluster"

    def clear(self, *, is_own: bool = False) -> None:
        """Remove what the last cluster left.

        Args:
            is_own: nothing but a cluster has ever written below `root`; then it needs no marker, which clusters of
                earlier versions did not write.

        Raises:
            ForeignDirectoryError: `root` is something else; nothing was removed.
        """
        found = sorted(self.root.iterdir()) if self.root.is_dir() else []
        is_known = is_own or not found or self.marker.is_file()
        if not is_known or (self.root.exists() and not self.root.is_dir()):
            raise ForeignDirectoryError(
                f"{self.root} is not empty, and no cluster was started there (it has no file {self.marker.name}): "
                "give another --home, or remove it yourself"
            )
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path != self.marker:
                path.unlink()

    def create(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.marker.touch()
        for directory in (self.volumes, self.logs, self.scripts, self.root / "layers"):
            directory.mkdir(parents=True, exist_ok=True)
        # PostgreSQL runs as a user of its own, who has to get to its volume.
        for directory in (self.root, self.volumes):
            directory.chmod(0o711)
        self.secrets.mkdir(mode=0o700, exist_ok=True)


def addresses(names: Sequence[str], ports: Iterable[int]) -> dict[str, str]:
    """Return an address for each service, in a network of 127.0.0.0/8 in which nothing uses `ports`.

    Raises:
        RuntimeError: something listens on one of the ports at every address of this machine.
    """
    used: set[int] = set()
    for _ in range(_NETWORKS):
        network = f"127.{random.SystemRandom().randrange(1, 255)}.{random.SystemRandom().randrange(0, 255)}"
        found = {name: f"{network}.{number}" for number, name in enumerate(names, 2)}
        used = {port for port in ports if not all(_is_free(address, port) for address in found.values())}
        if not used:
            return found
    raise RuntimeError(
        f"something else uses the ports {', '.join(map(str, sorted(used)))} on every address here: stop it"
    )


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Host:
    """Makes command lines and environments of services.

    `paths`: by service, the directory of the programs that its image would have.
    """

    state: State
    addresses: Mapping[str, str]
    image: Mapping[str, str]
    base: Mapping[str, str]
    paths: Mapping[str, Path] = field(default_factory=dict)

    def command(self, service: Service, command: Sequence[str], *, as_user: str = "") -> list[str]:
        """Return the command line that runs `command` where the service runs; `as_user` is a user of this machine."""
        script, text = self.state.scripts / f"{service.name}.sh", self._script(service)
        if not script.exists() or script.read_text() != text:
            # Put in place as a whole: a shell that was started a moment ago may be about to read it.
            written = script.with_suffix(f".{threading.get_ident()}")
            written.write_text(text)
            written.chmod(0o755)
            written.replace(script)
        own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        drop = _as(as_user, in_own_namespace=bool(own_user)) if as_user else []
        enter = [_UNSHARE, *own_user, "--mount", "--uts", "--propagation", "private"]
        return [*enter, "/bin/sh", str(script), *drop, *(_here(part) for part in command)]

    def environment(self, service: Service) -> dict[str, str]:
        path = self.base["PATH"]
        if service.name in self.paths:
            path = f"{self.paths[service.name]}:{path}"
        image = {name: _here(value).replace("$PATH", path) for name, value in self.image.items()}
        own = {name: _here(value) for name, value in service.environment.items()}
        image = image if service.is_ours else {"PATH": path}
        return {**self.base, **image, **own, PLATFORM_MARK: str(self.state.root)}

    def volume(self, name: str) -> Path:
        return self.state.volumes / name

    def make_volume(self, name: str) -> None:
        """Make a volume, unless it exists, and let only its owner in."""
        self.volume(name).mkdir(parents=True, exist_ok=True)
        self.volume(name).chmod(0o700)

    def write_hosts(self) -> None:
        lines = (f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **self.addresses}.items())
        self.state.hosts.write_text("".join(lines))

    def _script(self, service: Service) -> str:
        """Mount, hide, and become the command: the process id stays the one that was started."""
        targets = [(self._source(mount), _here(mount.target), mount) for mount in service.mounts]
        layers = self.state.root / "layers"
        lines = ["set -eu", f"hostname {service.name}", f"mount -t tmpfs none {_quoted(layers)}"]
        for number, ancestor in enumerate(sorted({_existing(target) for _, target, _ in targets})):
            # The mount points are made in a layer that goes with the process, not in this machine's directories.
            upper, work = layers / f"{number}-upper", layers / f"{number}-work"
            lines.append(f"mkdir {_quoted(upper)} {_quoted(work)}")
            options = f"lowerdir={ancestor},upperdir={upper},workdir={work}"
            lines.append(f"mount -t overlay overlay -o {_quoted(options)} {_quoted(ancestor)}")
        for source, target, mount in targets:
            make = f"mkdir -p {_quoted(Path(target).parent)} && touch {_quoted(target)}" if mount.is_secret else ""
            lines.append(make or f"mkdir -p {_quoted(target)}")
            lines.append(f"mount --bind {_quoted(source)} {_quoted(target)}")
            if mount.read_only:
                lines.append(f"mount -o remount,bind,ro {_quoted(target)}")
        lines += [
            f"mount --bind {_quoted(self.state.hosts)} {_HOSTS}",
            f"mount -t tmpfs none {_quoted(self.state.root)}",
            f"cd {_quoted(ROOT)}",
            'exec "$@"',
        ]
        return "\n".join(lines) + "\n"

    def _source(self, mount: Mount) -> Path:
        return self.state.secrets / mount.source if mount.is_secret else self.volume(mount.source)


def require_namespaces() -> None:
    """Raise NamespaceError, with what to do, if a process cannot have mounts of its own here."""
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(
        [_UNSHARE, *own_user, "--mount", "--uts", "true"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NamespaceError(
            f"unshare: {done.stderr.strip()}: run this as root, or allow user namespaces to unprivileged users"
        )


def _as(user: str, *, in_own_namespace: bool) -> list[str]:
    """Return what starts a command as `user`; in a user namespace one's own files belong to the user of that id."""
    entry = pwd.getpwnam(user)
    if in_own_namespace:
        return [_UNSHARE, "--user", f"--map-user={entry.pw_uid}", f"--map-group={entry.pw_gid}"]
    return ["setpriv", "--reuid", str(entry.pw_uid), "--regid", str(entry.pw_gid), "--clear-groups"]


def _existing(path: str) -> str:
    """Return the nearest directory above `path` that this machine has."""
    parent = Path(path).parent
    while not parent.is_dir():
        parent = parent.parent
    return str(parent)


def _here(text: str) -> str:
    """Replace paths of an image by their places here."""
    for there, here in _MOVED.items():
        text = text.replace(there, here)
    return text


def _quoted(path: object) -> str:
    return shlex.quote(str(path))
