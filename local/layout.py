"""Paths of the files of one local platform."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path(__file__).resolve().parents[1]
CACHE: Final = ROOT / ".cache"
VIRTUAL_ENVIRONMENT: Final = ROOT / ".venv"


@dataclass(frozen=True, slots=True)
class Layout:
    """Directories of one platform: `airflow_home` has all files of Airflow, `state` has the platform's own files."""

    airflow_home: Path
    state: Path

    @classmethod
    def of_checkout(cls) -> Self:
        """Return the layout of the platform that `make up` starts."""
        return cls(ROOT / ".airflow", ROOT / ".run")

    @classmethod
    def below(cls, directory: Path) -> Self:
        """Return the layout of a separate platform, with both directories below `directory`."""
        return cls(directory / "airflow", directory / "state")

    @property
    def airflow_cfg(self) -> Path:
        return self.airflow_home / "airflow.cfg"

    @property
    def passwords(self) -> Path:
        """JSON file (mode 0600) with the password of each user name."""
        return self.airflow_home / "passwords.json"

    @property
    def secrets(self) -> Path:
        return self.airflow_home / "secrets.json"

    @property
    def api_login(self) -> Path:
        return self.airflow_home / "tiering-api-login.json"

    @property
    def operator_login(self) -> Path:
        return self.airflow_home / "tiering-operator-login.json"

    @property
    def components(self) -> Path:
        """Directory with one JSON file per running component: pid and start time of its process."""
        return self.airflow_home / "run"

    @property
    def component_logs(self) -> Path:
        return self.airflow_home / "logs" / "components"

    @property
    def metrics_address(self) -> Path:
        """File with HOST:PORT of the endpoint of the metrics."""
        return self.airflow_home / "metrics-address"

    @property
    def work_dir(self) -> Path:
        """Scratch space of Spark jobs."""
        return self.airflow_home / "tiering"

    @property
    def tiering_toml(self) -> Path:
        return self.state / "tiering.toml"

    @property
    def sample_log_dirs(self) -> Path:
        return self.state / "brokers"

    @property
    def remote_storage(self) -> Path:
        return self.state / "remote"

    @property
    def metadata_database(self) -> Path:
        return self.state / "metadata.sqlite"
