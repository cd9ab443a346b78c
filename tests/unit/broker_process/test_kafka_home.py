"""Which jar is missing, and where it can be had."""

from pathlib import Path

import pytest

from include.tiering.broker_process.kafka_home import fetch, java, kafka_by_maven, kafka_in
from include.tiering.errors import KafkaMissingError

BROKER, STORAGE, TEST_STORAGE = "kafka_2.13-4.1.0.jar", "kafka-storage-4.1.0.jar", "kafka-storage-4.1.0-test.jar"


def with_jars(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).touch()
    return directory


def test_a_distribution_has_its_jars_in_libs(tmp_path: Path) -> None:
    with_jars(tmp_path / "libs", BROKER, STORAGE, TEST_STORAGE)
    found = kafka_in(tmp_path)
    assert (found.version, found.class_path.split(":")[0]) == ("4.1.0", f"{tmp_path}/libs/*")


def test_a_directory_of_jars_will_do(tmp_path: Path) -> None:
    found = kafka_in(with_jars(tmp_path, BROKER, STORAGE, TEST_STORAGE))
    assert found.class_path.split(":")[0] == f"{tmp_path}/*"


def test_the_test_storage_of_this_release_is_named(tmp_path: Path) -> None:
    with_jars(tmp_path / "libs", BROKER, STORAGE)
    with pytest.raises(
        KafkaMissingError, match=r"lacks kafka-storage-4\.1\.0-test\.jar.*jar:test:4\.1\.0 on Maven Central"
    ):
        kafka_in(tmp_path)


def test_what_is_no_kafka_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(KafkaMissingError, match="holds no broker"):
        kafka_in(with_jars(tmp_path, STORAGE, TEST_STORAGE))
    with pytest.raises(KafkaMissingError, match="no such file or directory"):
        kafka_in(tmp_path / "nowhere")


def test_without_maven_the_other_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaMissingError, match=r"mvn is not on the PATH.*--kafka-home"):
        kafka_by_maven({"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_what_maven_fetched_once_is_used_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_jars(tmp_path / "tiering" / "kafka" / "4.3.1" / "libs", "kafka_2.13-4.3.1.jar", "kafka-storage-4.3.1-test.jar")
    monkeypatch.setenv("PATH", "")
    assert kafka_by_maven({"XDG_CACHE_HOME": str(tmp_path)}).version == "4.3.1"


def test_a_maven_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\necho no route to host\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:/usr/bin:/bin")
    with pytest.raises(KafkaMissingError, match="mvn failed: no route to host"):
        fetch(tmp_path / "home", ())
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "home.lock"}


@pytest.fixture
def fresh_java() -> None:
    java.cache_clear()


@pytest.mark.usefixtures("fresh_java")
def test_no_java_and_an_old_java_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(KafkaMissingError, match="java is neither in JAVA_HOME nor on the PATH"):
        java()
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    program.chmod(0o755)
    with pytest.raises(KafkaMissingError, match="is no Java 17 or newer"):
        java()
