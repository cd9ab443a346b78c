"""A Prometheus that scrapes the cluster's metrics and evaluates the alert rules of `monitoring/alerts.yaml`."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from local import processes
from local.layout import ROOT
from local.platform import PlatformError, last_lines
from local.ports import LOOPBACK, free_port

ALERTS: Final = ROOT / "monitoring" / "alerts.yaml"
_PORT: Final = 9090
_START_SECONDS: Final = 60.0
_TIMEOUT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.5
_NAME: Final = "prometheus"


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One server; `address` is host and port."""

    address: str

    def query(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        """Return the instant vector of a PromQL expression: labels and value of each series.

        Raises:
            PlatformError: Prometheus does not answer.
        """
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(
                f"http://{self.address}/api/v1/query?{query}", timeout=_TIMEOUT_SECONDS
            ) as answer:
                result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except OSError as error:
            raise PlatformError(f"Prometheus at {self.address} does not answer {expression}: {error}") from error
        return [(one["metric"], float(one["value"][1])) for one in result]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now. Raises PlatformError if Prometheus does not answer."""
        return {labels["alertname"] for labels, _ in self.query('ALERTS{alertstate="firing"}')}

    def wait_for(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Call `is_there` every half second; return whether it became true in time."""
        deadline = time.monotonic() + seconds
        while not (found := is_there()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return found


def configuration(
    targets: Sequence[str], rules: Path, *, interval_seconds: int, token_file: Path | None = None
) -> dict[str, Any]:
    """Return the configuration of a Prometheus that scrapes `targets` as docs/monitoring.md says."""
    scraped: dict[str, Any] = {"job_name": "tiering", "static_configs": [{"targets": list(targets)}]}
    if token_file is not None:
        scraped["authorization"] = {"credentials_file": str(token_file)}
    interval = f"{interval_seconds}s"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(rules)],
        "scrape_configs": [scraped],
    }


def checked(programs: Path, home: Path, config: Mapping[str, Any]) -> Path:
    """Write the configuration below `home`, have promtool check it with its rules, and return the file.

    Raises:
        PlatformError: promtool refuses it; the message is its output.
    """
    home.mkdir(parents=True, exist_ok=True)
    file = home / "prometheus.yml"
    file.write_text(yaml.safe_dump(dict(config)))
    done = subprocess.run(
        [str(programs / "promtool"), "check", "config", str(file)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PlatformError(f"promtool check config {file}: {done.stdout}{done.stderr}")
    return file


def start(programs: Path, home: Path, config: Mapping[str, Any], *, pid_files: Path, log: Path) -> Prometheus:
    """Start a Prometheus on loopback that keeps everything below `home`, and wait until it is ready.

    Args:
        programs: the directory of prometheus and promtool.
        home: where its configuration and its data are.
        config: what `configuration` returns.
        pid_files: where its process is recorded, so that `stop` finds it.
        log: the file of its output.

    Raises:
        PlatformError: promtool refuses the configuration, or the server is not ready within a minute.
    """
    file = checked(programs, home, config)
    server = Prometheus(f"{LOOPBACK}:{free_port(_PORT)}")
    process = processes.start(
        _NAME,
        [
            str(programs / "prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address={server.address}",
        ],
        environment={"HOME": str(home)},
        log=log,
        pid_files=pid_files,
    )
    deadline = time.monotonic() + _START_SECONDS
    while not _is_ready(server):
        if process.status() == psutil.STATUS_ZOMBIE or time.monotonic() > deadline:
            raise PlatformError(f"Prometheus is not ready, its last lines ({log}):\n{last_lines(log)}")
        time.sleep(_POLL_SECONDS)
    return server


def _is_ready(server: Prometheus) -> bool:
    try:
        with urllib.request.urlopen(f"http://{server.address}/-/ready", timeout=_TIMEOUT_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
