"""docs/airflow.md lists what an Airflow of the reader's own needs: it agrees with the code."""

import ast
import json
import re
from typing import Final

import botocore.session
import pytest
from botocore import xform_name

from include.tiering.configs.pools import POOLS
from tests.doubles.source_tree import ROOT, python_files

_PAGE: Final = (ROOT / "docs" / "airflow.md").read_text()
_OPTIONS: Final = re.compile(r"^\| ([a-z_]+) \| .*\|$", re.MULTILINE)

_ACTIONS: Final = {
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "complete_multipart_upload": "s3:PutObject",
    "create_multipart_upload": "s3:PutObject",
    "delete_objects": "s3:DeleteObject",
    "get_bucket_versioning": "s3:GetBucketVersioning",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
    "list_object_versions": "s3:ListBucketVersions",
    "list_objects_v2": "s3:ListBucket",
    "put_object": "s3:PutObject",
    "upload_part": "s3:PutObject",
}
"""What each request of the code needs, by Amazon's list of actions."""
_WITH_A_VERSION: Final = "s3:DeleteObjectVersion"
"""What `delete_objects` needs in addition where an entry has a VersionId."""


def _requests() -> set[str]:
    """Operations of S3 that the library names, as a method of the client or as the name of one."""
    model = botocore.session.Session().get_service_model("s3")
    operations = {xform_name(name) for name in model.operation_names}
    found = set()
    for file in python_files("include"):
        if "s3" not in file.parts and file.name != "location.py":
            continue
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    # A method of the object store, not of the client.
    return (found & operations) - {"list_objects"}


def test_the_policy_of_the_bucket_allows_every_request_of_the_code_and_no_other() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", _PAGE, re.DOTALL)
    statements = json.loads(text)["Statement"]
    allowed = {
        action
        for statement in statements
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert {_ACTIONS[request] for request in _requests()} | {_WITH_A_VERSION} == allowed
    for action in allowed:
        assert f"`{action}`" in _PAGE, f"the table does not say what needs {action}"


@pytest.mark.parametrize("row", _OPTIONS.findall((ROOT / "plugins/tiering_airflow/configuration.py").read_text()))
def test_every_option_of_airflow_is_on_the_page(row: str) -> None:
    assert row in _OPTIONS.findall(_PAGE)


def test_every_pool_has_its_command() -> None:
    assert set(re.findall(r"airflow pools set (\w+)", _PAGE)) == {pool.name for pool in POOLS}


def test_the_page_says_which_dags_begin_paused() -> None:
    begins_unpaused = {
        file.stem for file in (ROOT / "dags").glob("*.py") if "is_paused_upon_creation=False" in file.read_text()
    }
    (others,) = re.findall(r"^The others begin unpaused, [^:]*: (.*)\.$", _PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", others)) == begins_unpaused
    paused = {file.stem for file in (ROOT / "dags").glob("*.py")} - begins_unpaused
    (said,) = re.findall(r"these DAGs begin paused: (.*?)\.", _PAGE)
    assert set(re.findall(r"`(\w+)`", said)) == paused
