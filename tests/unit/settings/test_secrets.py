"""No secret leaves the settings by print, error, JSON or file mode."""

from pathlib import Path

import pytest

from include.tiering.errors import SettingError
from include.tiering.settings import load_settings
from include.tiering.settings.catalogue import all_settings
from include.tiering.settings.fields import mask_url

SECRET = "hunter2"
ENVIRON = {
    "TIERING_METADATA__URL": f"postgresql+psycopg://tiering:{SECRET}@db:5432/tiering?sslpassword={SECRET}",
    "TIERING_REMOTE_STORAGE__SECRET_ACCESS_KEY": SECRET,
    "TIERING_REMOTE_STORAGE__SESSION_TOKEN": SECRET,
}


def test_neither_text_nor_shown_values_hold_a_secret() -> None:
    settings = load_settings(environ=ENVIRON)
    shown = {setting.name: setting.shown(settings) for setting in all_settings()}
    assert SECRET not in f"{settings!r} {settings} {shown} {settings.model_dump_json()}"
    assert shown["metadata.url"] == "postgresql+psycopg://tiering:***@db:5432/tiering?sslpassword=***"
    assert shown["remote_storage.secret_access_key"] == "***"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TIERING_METADATA__URL", f"mysql://u:{SECRET}@h/db"),
        ("TIERING_METADATA__URL", f"sqlite://u:{SECRET}@h/db"),
        ("TIERING_REMOTE_STORAGE__URL", f"s3://key:{SECRET}@bucket/prefix"),
        ("TIERING_REMOTE_STORAGE__URL", f"s3://bucket/prefix?secret={SECRET}"),
        ("TIERING_REMOTE_STORAGE__ENDPOINT_URL", f"https://key:{SECRET}@host"),
        ("TIERING_METADATA__URL", f"postgresql://[{SECRET}"),
    ],
)
def test_no_error_repeats_a_secret(variable: str, text: str) -> None:
    with pytest.raises(SettingError) as caught:
        load_settings(environ={variable: text})
    assert variable in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("sqlite:////state/metadata.sqlite", "sqlite:////state/metadata.sqlite"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("postgresql://user:p@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:p/@:?@host/db", "postgresql://user:***@host/db"),
        (
            "postgresql://host/db?user=a&password=b&sslmode=require",
            "postgresql://host/db?user=a&password=***&sslmode=require",
        ),
        ("sqlite:////odd:name@x", "sqlite:////odd:name@x"),
    ],
)
def test_masking_of_a_url(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_a_file_with_a_secret_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(f'[remote_storage]\nsecret_access_key = "{SECRET}"\n')
    file.chmod(0o640)
    with pytest.raises(
        SettingError, match=r"mode 0640\): chmod 600 it, or set TIERING_REMOTE_STORAGE__SECRET"
    ) as caught:
        load_settings(file, environ={})
    assert SECRET not in str(caught.value)
    file.chmod(0o600)
    secret = load_settings(file, environ={}).remote_storage.secret_access_key
    assert secret is not None
    assert secret.get_secret_value() == SECRET


def test_a_file_without_a_secret_may_be_read_by_all(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('metadata.url = "postgresql://user@host/db"\n')
    file.chmod(0o644)
    assert load_settings(file, environ={}).origin("metadata.url") == f"file {file}"
