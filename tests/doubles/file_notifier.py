"""A notifier of Airflow that appends what it is told to a file, from whichever process of Airflow calls it."""

import json
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier


class FileNotifier(BaseNotifier):
    """Appends a line of JSON for each call: its templates as Airflow rendered them."""

    template_fields = ("subject", "message")

    def __init__(self, path: str, subject: str, message: str) -> None:
        super().__init__()
        self.path, self.subject, self.message = path, subject, message

    def notify(self, context: Any) -> None:
        told = {"subject": self.subject, "message": self.message}
        with Path(self.path).open("a") as file:
            file.write(json.dumps(told) + "\n")
