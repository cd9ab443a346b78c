"""Where everything of one local platform lies on disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path(__file__).resolve().parents[1]
CACHE: Final = ROOT / ".cache"
VIRTUAL_ENVIRONMENT: Final = ROOT / ".venv"


@dataclass(frozen=True, slots=True)
class Layout:
    """`airflow_home` holds all of Airflow's files, `state` what the platform itself keeps."""

    airflow_home: Path
    state: Path

    @classmethod
    def of_checkout(cls) -> Self:
        """The platform that `make up` starts."""
        return cls(ROOT / ".airflow", ROOT / ".run")

    @classmethod
    def below(cls, directory: Path) -> Self:
        """A platform of its own, all of it below one directory."""
        return cls(directory / "airflow", directory / "state")

    @property
    def airflow_cfg(self) -> Path:
        return self.airflow_home / "airflow.cfg"

    @property
    def passwords(self) -> Path:
        """JSON, user name to password, 0600."""
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
        """One JSON file per running component: its pid and when that process was born."""
        return self.airflow_home / "run"

    @property
    def component_logs(self) -> Path:
        return self.airflow_home / "logs" / "components"

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
