"""Questions to Airflow's REST API, over real HTTP to a server that answers by script."""

import json
from pathlib import Path

import pytest

from include.tiering.configs.airflow_api import AirflowApi, Login, Token
from include.tiering.errors import AirflowApiError, AirflowApiUnavailableError
from tests.doubles.airflow_api_server import AirflowApiServer, MisleadingServer, serving

LOGIN = Login("reader", "s3cret")


def test_one_token_serves_many_questions() -> None:
    with serving(AirflowApiServer()) as server:
        with AirflowApi(server.url, LOGIN) as api:
            answers = [api.get("/pools/remote_log_copier")["slots"] for _ in range(3)]
        assert answers == [2, 2, 2]
    assert server.tokens == 1
    assert server.seen[0] == ("POST", "/auth/token", {"username": "reader", "password": "s3cret"})


def test_an_expired_token_is_renewed() -> None:
    with serving(AirflowApiServer(token_lasts=1)) as server:
        with AirflowApi(server.url, LOGIN) as api:
            answers = [api.get("/pools/remote_log_copier")["slots"] for _ in range(3)]
        assert answers == [2, 2, 2]
    assert server.tokens == 3


def test_a_token_of_the_users_is_used_as_it_is() -> None:
    with serving(AirflowApiServer()) as server:
        server.tokens = 7
        with AirflowApi(server.url, Token("token-7")) as api:
            assert api.get("/pools/remote_log_copier")["slots"] == 2
        with AirflowApi(server.url, Token("token-6")) as api, pytest.raises(AirflowApiError, match="401"):
            api.get("/pools/remote_log_copier")
    assert all(path != "/auth/token" for _, path, _ in server.seen)
    assert "token-6" not in repr(Token("token-6"))


def test_a_refusal_carries_airflows_words_and_no_password() -> None:
    with serving(AirflowApiServer()) as server, pytest.raises(AirflowApiError, match="no such pool") as refused:
        AirflowApi(server.url, LOGIN).get("/pools/other")
    assert not refused.value.retriable
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(LOGIN)


@pytest.mark.parametrize("text", ["<html>log in</html>", "[]", "{}", '{"access_token": 1}'])
def test_an_answer_that_is_not_airflows_is_a_typed_error(text: str) -> None:
    with serving(MisleadingServer(200, text)) as server, pytest.raises(AirflowApiError):
        AirflowApi(server.url, LOGIN).get("/pools")


def test_a_login_that_is_repeated_in_the_refusal_is_not_shown() -> None:
    echo = json.dumps({"detail": [{"input": {"username": "reader", "password": LOGIN.password}}]})
    with serving(MisleadingServer(422, echo)) as server, pytest.raises(AirflowApiError, match="422") as refused:
        AirflowApi(server.url, LOGIN).get("/pools")
    assert LOGIN.password not in str(refused.value)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_its_server_is_worth_retrying(status: int) -> None:
    with serving(MisleadingServer(status, "")) as server, pytest.raises(AirflowApiUnavailableError):
        AirflowApi(server.url, LOGIN).get("/pools")


def test_no_answer_is_worth_retrying() -> None:
    with serving(AirflowApiServer()) as server:
        url = server.url
    with AirflowApi(url, LOGIN) as api, pytest.raises(AirflowApiUnavailableError, match="does not answer"):
        api.get("/pools")


def test_a_login_file_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "login.json"
    file.write_text(json.dumps({"username": "reader", "password": "s3cret"}))
    file.chmod(0o640)
    with pytest.raises(AirflowApiError, match="chmod 600"):
        Login.from_file(file)
    file.chmod(0o600)
    assert Login.from_file(file) == LOGIN


@pytest.mark.parametrize("content", ["", "[]", '{"username": "reader"}', "not json"])
def test_a_malformed_login_file_is_named_without_its_content(tmp_path: Path, content: str) -> None:
    file = tmp_path / "login.json"
    file.write_text(content)
    with pytest.raises(AirflowApiError, match=r"login\.json"):
        Login.from_file(file)
