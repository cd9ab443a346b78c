"""What runs once before Airflow's containers: login files from the secrets given, then databases and pools.

Repeating it keeps the databases and writes the login files anew, so a changed password takes effect.
"""

import json
import os
import secrets
import sys
from pathlib import Path

from local import set_up
from local.secrets_store import ADMIN, OPERATOR, READER, write_private


def write_logins(airflow_home: Path, admin_password: str) -> None:
    """Passwords of Airflow's users, and the logins by which sizes of pools are read and changed; 0600 all."""
    passwords = {ADMIN: admin_password, READER: secrets.token_urlsafe(24), OPERATOR: secrets.token_urlsafe(24)}
    write_private(airflow_home / "passwords.json", json.dumps(passwords))
    for name, user in (("tiering-api-login.json", READER), ("tiering-operator-login.json", OPERATOR)):
        write_private(airflow_home / name, json.dumps({"username": user, "password": passwords[user]}))


if __name__ == "__main__":
    write_logins(Path(os.environ["AIRFLOW_HOME"]), os.environ["AIRFLOW_ADMIN_PASSWORD"])
    sys.exit(set_up.main())
