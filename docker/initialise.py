"""Set-up that runs once before Airflow's containers: write login files from secrets, then create databases and pools.

A second run keeps the databases and writes the login files again, so that a changed password takes effect.
"""

import json
import os
import secrets
import sys
from pathlib import Path

from local import set_up
from local.secrets_store import ADMIN, OPERATOR, READER, write_private


def write_logins(airflow_home: Path, admin_password: str) -> None:
    """Write passwords of Airflow's users, and the logins that read and change pool sizes; all with mode 0600."""
    passwords = {ADMIN: admin_password, READER: secrets.token_urlsafe(24), OPERATOR: secrets.token_urlsafe(24)}
    write_private(airflow_home / "passwords.json", json.dumps(passwords))
    for name, user in (("tiering-api-login.json", READER), ("tiering-operator-login.json", OPERATOR)):
        write_private(airflow_home / name, json.dumps({"username": user, "password": passwords[user]}))


if __name__ == "__main__":
    write_logins(Path(os.environ["AIRFLOW_HOME"]), os.environ["AIRFLOW_ADMIN_PASSWORD"])
    sys.exit(set_up.main())
