"""PySpark comes from the package, with its bytecode, if Spark's zip file belongs to the same package."""

from pathlib import Path

from spark_jobs import without_zipped_pyspark


def _installed(directory: Path) -> Path:
    """An installed package `pyspark` that is Spark's home, too; return its zip file."""
    home = directory / "site-packages" / "pyspark"
    zipped = home / "python" / "lib" / "pyspark.zip"
    zipped.parent.mkdir(parents=True)
    zipped.touch()
    (home / "__init__.py").touch()
    return zipped


def test_the_zip_file_of_the_installed_package_is_left_out(tmp_path: Path) -> None:
    zipped, packages = str(_installed(tmp_path)), str(tmp_path / "site-packages")
    assert without_zipped_pyspark(["/job", zipped, "/py4j.zip", packages]) == ["/job", "/py4j.zip", packages]


def test_the_zip_file_of_another_spark_stays(tmp_path: Path) -> None:
    other, packages = "/opt/spark/python/lib/pyspark.zip", str(tmp_path / "site-packages")
    _installed(tmp_path)
    assert without_zipped_pyspark([other, packages]) == [other, packages]


def test_the_only_pyspark_stays(tmp_path: Path) -> None:
    zipped = str(_installed(tmp_path))
    assert without_zipped_pyspark([zipped, str(tmp_path)]) == [zipped, str(tmp_path)]
