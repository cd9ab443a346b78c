"""Health check of a container: `healthy.py HOST PORT PATH` exits with 0 if the response has status 200."""

import http.client
import sys


def answers(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not answers(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
