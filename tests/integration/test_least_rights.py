"""The rights that the docs name are enough for the whole story, and without one of them the store's refusal is named.

A real versitygw enforces the policy of docs/airflow.md for an account of its own, and a real PostgreSQL the grants of
docs/operations.md for a role that owns nothing.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.exc import ProgrammingError

from include.tiering.cli.exit_codes import ExitCode
from tests.doubles.broker_data import broker_data
from tests.doubles.databases import create_postgresql_database, new_name
from tests.doubles.s3_server import (
    ACCESS_KEY,
    NO_VERSITYGW,
    SECRET_KEY,
    VersityGateway,
    find_versitygw,
    raw_client,
    versitygw_server,
)
from tests.doubles.source_tree import ROOT

__all__ = ["create_postgresql_database"]
pytestmark = pytest.mark.integration

BUCKET, PREFIX = "my-bucket", "kafka"
WORKER, WORKER_SECRET = "tiering-worker", "worker-secret-key"
OWNER, ROLE = "tiering_owner", "tiering"


@dataclass(frozen=True)
class Deployment:
    """`./tiering` with one settings file and one environment."""

    config: Path
    environment: dict[str, str]

    def _done(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(ROOT / "tiering"), "--config", str(self.config), *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def exit_code(self, *arguments: str) -> int:
        return self._done(*arguments).returncode

    def run(self, *arguments: str, code: int = 0) -> str:
        done = self._done(*arguments)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout if "--json" in arguments else done.stdout + done.stderr

    def document(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))


def deployment(tmp_path: Path, *, store: str, database: str, environment: dict[str, str]) -> Deployment:
    config = tmp_path / "tiering.toml"
    log_dirs = broker_data("public") / "stopped"
    config.write_text(
        "\n".join(
            [
                'topics.include = ["*"]',
                store,
                *(f'[[log_dirs]]\nbroker_id = {n}\npath = "{log_dirs}/broker-{n}"' for n in (1, 2)),
            ]
        )
    )
    known = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TIERING_METADATA__URL": database}
    return Deployment(config, known | environment)


def whole_story(at: Deployment) -> None:
    """Everything that copies, reads, compares and deletes."""
    at.run("ready")
    at.run("copy")
    at.run("verify", "--depth", "deep")
    at.run("sizes")
    at.run("audit")
    alter = ("--alter", "--entity-type", "topics", "--entity-name", "orders", "--add-config")
    at.run("configs", *alter, "retention.bytes=65536")
    assert "deleted" in at.run("expire", "--approve")
    at.run("audit")
    at.run("pause")
    at.run("resume")


def documented_policy() -> list[dict[str, Any]]:
    (policy,) = re.findall(r"```json\n(\{\n  \"Version\": .*?)```", (ROOT / "docs/airflow.md").read_text(), re.DOTALL)
    return list(json.loads(policy)["Statement"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    """A store with two accounts: its administrator, and one that may do what a policy allows."""
    binary = find_versitygw()
    if binary is None:
        pytest.skip(NO_VERSITYGW)
    directory = tmp_path_factory.mktemp("versitygw")
    (directory / "iam").mkdir()
    with versitygw_server(binary, directory, "--iam-dir", str(directory / "iam")) as started:
        administrator = ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--endpoint-url", started.endpoint_url]
        account = ["--access", WORKER, "--secret", WORKER_SECRET, "--role", "user"]
        subprocess.run([str(binary), "admin", *administrator, "create-user", *account], check=True, timeout=60)
        started.make_bucket(BUCKET)
        yield started


def allow(server: VersityGateway, *, without: str = "") -> None:
    """Let the account do what the docs say, but for one action."""
    allowed = []
    for statement in documented_policy():
        actions = statement["Action"]
        kept = [action for action in ([actions] if isinstance(actions, str) else actions) if action != without]
        if kept:
            allowed.append(statement | {"Action": kept, "Principal": {"AWS": [WORKER]}})
    policy = json.dumps({"Version": "2012-10-17", "Statement": allowed})
    raw_client(server.endpoint_url).put_bucket_policy(Bucket=BUCKET, Policy=policy)


@pytest.fixture
def on_s3(server: VersityGateway, tmp_path: Path) -> Deployment:
    url = f"s3://{BUCKET}/{PREFIX}/{tmp_path.name}"
    store = f'remote_storage.url = "{url}"\nremote_storage.endpoint_url = "{server.endpoint_url}"'
    login = {"AWS_ACCESS_KEY_ID": WORKER, "AWS_SECRET_ACCESS_KEY": WORKER_SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    return deployment(tmp_path, store=store, database=f"sqlite:///{tmp_path}/db.sqlite", environment=login)


def test_the_documented_policy_is_enough_for_the_whole_story(server: VersityGateway, on_s3: Deployment) -> None:
    allow(server)
    on_s3.run("migrate")
    whole_story(on_s3)


def test_the_account_reaches_nothing_else(server: VersityGateway) -> None:
    allow(server)
    root = raw_client(server.endpoint_url)
    root.put_object(Bucket=BUCKET, Key="elsewhere/key", Body=b"theirs")
    worker = boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=WORKER,
        aws_secret_access_key=WORKER_SECRET,
        config=Config(s3={"addressing_style": "path"}),
    )
    elsewhere = {"Bucket": BUCKET, "Key": "elsewhere/key"}
    for refused in (
        lambda: worker.get_object(**elsewhere),
        lambda: worker.put_object(**elsewhere, Body=b"ours"),
        lambda: worker.delete_object(**elsewhere),
        lambda: worker.put_bucket_policy(Bucket=BUCKET, Policy="{}"),
        lambda: worker.delete_bucket(Bucket=BUCKET),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            refused()
    assert root.get_object(**elsewhere)["Body"].read() == b"theirs"


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("s3:DeleteObject", "objects cannot be deleted"),
        ("s3:PutObject", "AccessDenied"),
        ("s3:GetObject", "AccessDenied"),
    ],
)
def test_ready_names_a_right_that_is_missing(
    server: VersityGateway, on_s3: Deployment, missing: str, said: str
) -> None:
    allow(server)
    on_s3.run("migrate")
    allow(server, without=missing)
    assert said in on_s3.run("ready", code=ExitCode.RETRY)


def documented_grants() -> list[str]:
    (block,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/operations.md").read_text(), re.DOTALL)
    return [statement.strip() for statement in block.split(";") if statement.strip()]


@pytest.fixture
def on_postgresql(
    create_postgresql_database: Callable[[str], str], tmp_path: Path
) -> Iterator[tuple[Deployment, Deployment]]:
    """The deployment as the database's owner, who migrates, and as the role that works."""
    name = new_name()
    superuser = make_url(create_postgresql_database(name))
    engine = create_engine(superuser, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    as_user = lambda user: superuser.set(username=user).render_as_string(hide_password=False)  # noqa: E731
    store = f'remote_storage.url = "file://{tmp_path}/store"'
    with engine.connect() as connection:
        for statement in (
            f"CREATE ROLE {OWNER} LOGIN",
            f"CREATE ROLE {ROLE} LOGIN",
            f"ALTER DATABASE {name} OWNER TO {OWNER}",
            "ALTER SCHEMA public OWNER TO " + OWNER,
        ):
            connection.execute(text(statement))
    owner = deployment(tmp_path, store=store, database=as_user(OWNER), environment={})
    owner.run("migrate")
    with create_engine(as_user(OWNER), poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as connection:
        for statement in documented_grants():
            connection.execute(text(statement))
    yield owner, deployment(tmp_path, store=store, database=as_user(ROLE), environment={})
    with create_engine(superuser, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text(f"DROP OWNED BY {ROLE}"))
        connection.execute(text(f"DROP ROLE {ROLE}"))
        connection.execute(text("REASSIGN OWNED BY " + OWNER + " TO CURRENT_USER"))
        connection.execute(text(f"DROP ROLE {OWNER}"))


def test_a_role_that_owns_nothing_does_the_whole_story(on_postgresql: tuple[Deployment, Deployment]) -> None:
    _, worker = on_postgresql
    whole_story(worker)


def test_that_role_changes_no_table_and_a_new_table_is_granted(on_postgresql: tuple[Deployment, Deployment]) -> None:
    owner, worker = on_postgresql
    as_owner, as_worker = (
        create_engine(at.environment["TIERING_METADATA__URL"], poolclass=NullPool) for at in (owner, worker)
    )
    for statement in (
        "DROP TABLE segments",
        "ALTER TABLE segments ADD x int",
        "CREATE TABLE mine (x int)",
        "TRUNCATE segments",
    ):
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"), as_worker.begin() as connection:
            connection.execute(text(statement))
    with as_owner.begin() as connection:
        connection.execute(text("CREATE TABLE of_the_next_version (x int)"))
    with as_worker.begin() as connection:
        connection.execute(text("INSERT INTO of_the_next_version VALUES (1)"))
