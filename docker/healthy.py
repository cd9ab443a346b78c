"""Health checks of the containers; the exit code is 0 if the part works.

healthy.py http HOST PORT PATH                  the response has status 200
healthy.py airflow HOST PORT PART               Airflow's API server says that PART (such as triggerer) is healthy
healthy.py spark-worker MASTER PORT WORKER      Spark's master knows the worker on this host as alive
healthy.py celery NAME                          the Celery worker NAME answers a ping through the broker
"""

import http.client
import json
import os
import subprocess
import sys

_SECONDS = 5.0


def answer(host: str, port: str, path: str) -> bytes | None:
    """Return the body of a response with status 200; None for all else."""
    connection = http.client.HTTPConnection(host, int(port), timeout=_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read() if response.status == http.client.OK else None
    except OSError:
        return None
    finally:
        connection.close()


def is_part_healthy(health: bytes, part: str) -> bool:
    """Evaluate `/api/v2/monitor/health`: a part without a recent heartbeat is not healthy."""
    return bool(json.loads(health).get(part, {}).get("status") == "healthy")


def is_worker_alive(state: bytes, host: str) -> bool:
    """Evaluate the master's `/json/`, which also lists workers that it has lost."""
    return any(worker["host"] == host and worker["state"] == "ALIVE" for worker in json.loads(state)["workers"])


def _answers_ping(name: str) -> bool:
    from celery import Celery

    command = os.environ["AIRFLOW__CELERY__BROKER_URL_CMD"].split()
    broker = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return bool(Celery(broker=broker).control.ping(destination=[name], timeout=_SECONDS))


def main(kind: str, *arguments: str) -> bool:
    if kind == "celery":
        return _answers_ping(*arguments)
    host, port, what = arguments
    paths = {"http": what, "airflow": "/api/v2/monitor/health", "spark-worker": "/json/"}
    body = answer(host, port, paths[kind])
    if body is None or kind == "http":
        return body is not None
    return is_part_healthy(body, what) if kind == "airflow" else is_worker_alive(body, what)


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
