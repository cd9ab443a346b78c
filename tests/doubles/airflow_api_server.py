"""A server that answers like Airflow's REST API, over real HTTP: tokens, pools, the log of who patched them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from include.tiering.configs.pools import POOLS


class AirflowApiServer(ThreadingHTTPServer):
    """Hands out numbered tokens; only the newest is good, and only for as many requests as `token_lasts`.

    `pools` are as Airflow shows them; a PATCH without all fields is refused, as by Airflow. `dags` says of each DAG of
    the tag `tiering` whether it is paused.
    """

    daemon_threads = True

    def __init__(self, token_lasts: int = 1000) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token_lasts = token_lasts
        self.tokens = 0
        self.uses = 0
        self.seen: list[tuple[str, str, Any]] = []
        self.pools: dict[str, dict[str, Any]] = {spec.name: pool(spec.name, 2) for spec in POOLS}
        self.dags: dict[str, bool] = {}
        self.edits: list[dict[str, Any]] = []
        self.parallelism: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def pool(name: str, slots: int, **figures: int) -> dict[str, Any]:
    """As Airflow shows it; figures default to 0."""
    in_use = dict.fromkeys(("running_slots", "queued_slots", "scheduled_slots", "deferred_slots"), 0)
    return {
        "name": name,
        "slots": slots,
        "description": f"about {name}",
        "include_deferred": False,
        "open_slots": slots,
        "occupied_slots": 0,
        **in_use,
        **figures,
    }


class _Handler(BaseHTTPRequestHandler):
    server: AirflowApiServer

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.seen.append((self.command, self.path, body))
        if self.path == "/auth/token":
            self.server.tokens += 1
            self.server.uses = 0
            self.send(201, {"access_token": f"token-{self.server.tokens}"})
        elif self.headers["Authorization"] != f"Bearer token-{self.server.tokens}":
            self.send(401, {"detail": "stale"})
        elif self.server.uses >= self.server.token_lasts:
            self.send(401, {"detail": "expired"})
        else:
            self.server.uses += 1
            self._content(urlsplit(self.path).path.removeprefix("/api/v2"), body)

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815

    def _content(self, path: str, body: Any) -> None:
        pools = self.server.pools
        name = unquote(path.removeprefix("/pools/"))
        if path == "/pools":
            self.send(200, {"pools": list(pools.values()), "total_entries": len(pools)})
        elif path.startswith("/pools/") and name in pools:
            if self.command == "PATCH":
                if not {"pool", "slots", "include_deferred"} <= body.keys():
                    self.send(422, {"detail": "fields missing"})
                    return
                pools[name] |= {key: value for key, value in body.items() if key != "pool"}
            self.send(200, pools[name])
        elif path == "/dags":
            asked = parse_qs(urlsplit(self.path).query)
            found = self.server.dags if asked["tags"] == ["tiering"] else {}
            self.send(200, {"dags": [{"dag_id": name, "is_paused": paused} for name, paused in found.items()]})
        elif path == "/eventLogs":
            asked = parse_qs(urlsplit(self.path).query)
            edits = [one for one in self.server.edits if one["event"] in asked["included_events"]]
            self.send(200, {"event_logs": [one for one in reversed(edits) if one["when"] > asked["after"][0]]})
        elif path.startswith("/config/") and self.server.parallelism is not None:
            options = [{"key": "parallelism", "value": self.server.parallelism}]
            self.send(200, {"sections": [{"name": "core", "options": options}]})
        elif path.startswith("/config/"):
            self.send(403, {"detail": "not exposed"})
        else:
            self.send(404, {"detail": "no such pool"})

    def send(self, status: int, content: Any) -> None:
        encoded = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *_: Any) -> None:
        return None


class MisleadingServer(AirflowApiServer):
    """Answers every request alike."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__()
        self.answer = status, text
        self.RequestHandlerClass = _MisleadingHandler


class _MisleadingHandler(_Handler):
    server: MisleadingServer

    def _same(self) -> None:
        self.send(*self.server.answer)

    do_GET = do_POST = do_PATCH = _same  # noqa: N815


@contextmanager
def serving(server: AirflowApiServer) -> Iterator[AirflowApiServer]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
