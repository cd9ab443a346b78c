"""Write the empty wheel `packaging/pyspark_client-*.whl`, which `requirements.txt` installs in place of pyspark-client.

Airflow's Spark provider requires pyspark-client, whose files lie at the paths of pyspark's and are of another version.
This wheel has the name and no files, so that `pip install -r requirements.txt` leaves pyspark whole. Its version is
that of pyspark, with a local part that no package index can have. The bytes depend on nothing but the version.
"""

import base64
import hashlib
import io
import re
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_FIRST_TIME: Final = (1980, 1, 1, 0, 0, 0)


def pyspark_version(pyproject: str) -> str:
    """Return the version of pyspark that the project pins. Raises ValueError if it pins none."""
    found = re.search(r'"pyspark\[[a-z,]+\]==([0-9.]+)"', pyproject)
    if found is None:
        raise ValueError("pyproject.toml pins no version of pyspark")
    return found[1]


def empty_wheel(version: str) -> tuple[str, bytes]:
    """Return the name and the bytes of the wheel that stands for a version of pyspark-client."""
    version = f"{version}+empty"
    info = f"pyspark_client-{version}.dist-info"
    files = {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: pyspark-client\nVersion: {version}\n"
            "Summary: No files: pyspark has them all. Made by local/empty_wheel.py of kafka-tiering-operations.\n"
        ),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: local.empty_wheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for name, text in files.items():
            member = zipfile.ZipInfo(name, _FIRST_TIME)
            member.external_attr = 0o644 << 16
            archive.writestr(member, text)
    return f"pyspark_client-{version}-py3-none-any.whl", wheel.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def main() -> None:
    """Write the wheel, and remove those of other versions."""
    folder = ROOT / "packaging"
    name, content = empty_wheel(pyspark_version((ROOT / "pyproject.toml").read_text()))
    for old in folder.glob("pyspark_client-*.whl"):
        old.unlink()
    (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
