"""The data docs in Airflow: who may read them, what they are served with, that nothing else is served."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from include.tiering.html_markup import CONTENT_SECURITY_POLICY
from include.tiering.verification.data_docs import DataDocs
from plugins.tiering_airflow.data_docs import URL_PREFIX
from plugins.tiering_airflow.web import verification
from plugins.tiering_airflow.web.verification import QualityPlugin
from tests.doubles.self_contained import parsed
from tests.doubles.source_tree import ROOT
from tests.unit.verification.data_docs.test_pages import RUN

# Airflow's web application imports a test client.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")

Get = Callable[..., httpx.Response]
PAGE = f"/tiering/quality/dags/{RUN.origin}/runs/{RUN.run_id}"


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DataDocs:
    monkeypatch.setenv("TIERING_DATA_DOCS__PATH", str(tmp_path / "docs"))
    docs = DataDocs(tmp_path / "docs")
    docs.publish(RUN)
    (tmp_path / "docs" / "index.html").write_text("secret")
    (tmp_path / "secret.html").write_text("secret")
    return docs


@pytest.fixture
def get(docs: DataDocs, requests_to: Callable[..., Get]) -> Iterator[Get]:
    yield requests_to(QualityPlugin)
    verification.make_application.cache_clear()


def test_who_may_read_the_logs_may_read_the_page(get: Get, docs: DataDocs) -> None:
    page = docs.page(RUN.origin, RUN.run_id)
    assert page is not None
    answer = get(PAGE)
    assert (answer.status_code, answer.content) == (200, page.read_bytes())
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert get(f"/tiering/quality/dags/{RUN.origin}/{page.parent.name}/index.html").content == answer.content


def test_links_lead_from_the_list_to_the_page_and_back(get: Get) -> None:
    listed = httpx.URL(f"http://airflow/tiering/quality/dags/{RUN.origin}/index.html")
    (link,) = parsed(get(listed.path).content).links
    page = listed.join(link)
    back = page.join(parsed(get(page.path).content).links[0])
    assert back == listed == httpx.URL(f"http://airflow{PAGE}").join("../index.html")


@pytest.mark.parametrize("path", [PAGE, f"/tiering/quality/dags/{RUN.origin}", "/tiering/quality/dags/x/y/index.html"])
def test_nobody_reads_without_airflows_permission(get: Get, path: str) -> None:
    assert get(path, role="nobody").status_code == 401
    assert get(path, role="nobody", headers={"Authorization": "Bearer x"}).status_code in {401, 403}
    assert get(path, role=None).status_code == 403


def test_a_run_without_a_page_says_so(get: Get) -> None:
    answer = get(f"/tiering/quality/dags/{RUN.origin}/runs/another")
    assert answer.status_code == 404
    assert "No report of this run" in parsed(answer.content).text
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY


@pytest.mark.parametrize(
    "path",
    [
        "/tiering/quality/index.html",
        "/tiering/quality/dags/../index.html",
        "/tiering/quality/dags/%2e%2e/index.html",
        "/tiering/quality/dags/%2e%2e%2f/index.html",
        "/tiering/quality/dags/../../secret.html",
        "/tiering/quality/dags/%2e/index.html",
        f"/tiering/quality/dags/{RUN.origin}/runs/../../../secret.html",
        f"/tiering/quality/dags/{RUN.origin}/runs/..%2f..%2fsecret.html",
        f"/tiering/quality/dags/{RUN.origin}/%2e%2e/index.html",
        f"/tiering/quality/dags/{RUN.origin}/..%2f../index.html",
        f"/tiering/quality/dags/{RUN.origin}/summary.json",
        "/tiering/quality/docs",
        "/tiering/quality/openapi.json",
    ],
)
def test_no_address_leads_out_of_the_pages(get: Get, path: str) -> None:
    answer = get(path)
    assert answer.status_code == 404
    assert "secret" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(get: Get, method: str) -> None:
    assert get(PAGE, method=method, role="admin").status_code == 405


def test_airflow_finds_the_plugin() -> None:
    from airflow import plugins_manager

    applications, _ = plugins_manager.get_fastapi_plugins()
    assert URL_PREFIX in {application["url_prefix"] for application in applications}


def test_tabs_and_applications_share_a_prefix() -> None:
    assert {tab["destination"] for tab in QualityPlugin.external_views} == {"dag", "dag_run"}
    assert all(tab["href"].startswith(URL_PREFIX) for tab in QualityPlugin.external_views)


def test_every_process_of_airflow_loads_the_plugin_and_nothing_heavy_with_it() -> None:
    program = (
        "import sys, airflow.plugins_manager; before = set(sys.modules);"
        "import plugins.tiering_plugin; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, env=dict(os.environ)
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "include" in loaded
    assert loaded.isdisjoint({"fastapi", "great_expectations", "numpy", "pandas", "pydantic", "boto3"})
