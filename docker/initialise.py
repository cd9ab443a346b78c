"""Set-up that runs once before Airflow's containers: databases, pools, the store's marker, and users from secrets.

A second run changes nothing but passwords: those in the secrets take effect. At the end it says what is still off.
"""

import json
import sys
from pathlib import Path

from airflow.configuration import conf
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

from include.tiering.settings import TieringSettings, load_settings
from local import set_up

_SECRETS = Path("/run/secrets")
ROLES = {"airflow_reader.json": "Viewer", "airflow_operator.json": "Op"}
"""Login files, and the roles of their users: one reads the sizes of pools, the other changes them."""


def create_users(secrets: Path) -> None:
    """Create the administrator and the users of the login files, or set their passwords."""
    logins = {("admin", "Admin"): (secrets / "airflow_admin_password").read_text().strip()}
    for file, role in ROLES.items():
        login = json.loads((secrets / file).read_text())
        logins[login["username"], role] = login["password"]
    with get_application_builder() as builder:
        manager = builder.sm
        manager.sync_roles()
        for (name, role), password in logins.items():
            user = manager.find_user(username=name)
            if user is not None:
                manager.reset_password(user.id, password)
            elif not manager.add_user(name, name, "", f"{name}@localhost", manager.find_role(role), password):
                raise SystemExit(f"the user {name} could not be created")


def what_is_off(settings: TieringSettings) -> str:
    """Return the sentences for a platform that has just been set up."""
    included = ", ".join(settings.topics.include)
    topics = f"Topics: {included}." if included else "No topic is included: set topics.include in secrets/tiering.toml."
    if not conf.getboolean("core", "dags_are_paused_at_creation"):
        return topics
    return (
        f"{topics} Until you unpause them, these DAGs do nothing: tiering_copy, tiering_quality, tiering_audit and"
        " tiering_expiration (docker compose exec airflow-scheduler airflow dags unpause tiering_copy)."
    )


if __name__ == "__main__":
    if failed := set_up.main():
        sys.exit(failed)
    create_users(_SECRETS)
    print(what_is_off(load_settings()))
