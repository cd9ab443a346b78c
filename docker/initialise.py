"""What runs once before Airflow's containers: login files from the secrets given, then databases and pools.

Repeating it keeps the databases and writes the login files anew, so a changed password takes effect.
"""

import json
import os
import secrets
import sys
from pathlib import Path

from local import set_up
from local.secrets_store import ADMIN, READER, write_private


def write_logins(airflow_home: Path, admin_password: str) -> None:
    """Passwords of Airflow's users, and the login with which copy batches read pool sizes; 0600 both."""
    reader_password = secrets.token_urlsafe(24)
    write_private(airflow_home / "passwords.json", json.dumps({ADMIN: admin_password, READER: reader_password}))
    write_private(
        airflow_home / "tiering-api-login.json", json.dumps({"username": READER, "password": reader_password})
    )


if __name__ == "__main__":
    write_logins(Path(os.environ["AIRFLOW_HOME"]), os.environ["AIRFLOW_ADMIN_PASSWORD"])
    sys.exit(set_up.main())
