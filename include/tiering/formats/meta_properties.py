"""`meta.properties` of a log directory: whose it is. A Java properties file.

    # Fri Nov 20 10:12:44 UTC 2026
    version=1
    node.id=1
    directory.id=oZ7F0QwpZ6nyqzcRPvHhsg
    cluster.id=12IO-UzuQxmrizG4BTlN8w

Version 0 (or no version) names the node `broker.id`, and may lack both ids. Source: Kafka's MetaProperties.
"""

import re
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.model.ids import Uuid
from include.tiering.units import KIB

MAX_META_PROPERTIES_BYTES: Final = 64 * KIB
_LINE: Final = re.compile(r"((?:[^\s=:\\]|\\.)+)\s*[=:\s]\s*(.*)", re.ASCII)
_ESCAPE: Final = re.compile(r"\\(.)")
_NODE_ID: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a log directory; None is what the file does not say."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None


def parse(data: bytes) -> MetaProperties:
    """Raises FormatError: too large, not properties, another version than 0 and 1, or an id of another form."""
    properties = _parse_properties(data)
    version = properties.get("version", "0")
    if version not in ("0", "1"):
        raise FormatError(f"meta.properties version {version[:20]!r} is neither 0 nor 1")
    node_key = "node.id" if version == "1" else "broker.id"
    meta = MetaProperties(
        version=int(version),
        cluster_id=properties.get("cluster.id"),
        node_id=_node_id(properties.get(node_key)),
        directory_id=_directory_id(properties.get("directory.id")),
    )
    if meta.version == 1 and (meta.cluster_id is None or meta.node_id is None):
        raise FormatError("meta.properties version 1 lacks cluster.id or node.id")
    return meta


def _parse_properties(data: bytes) -> dict[str, str]:
    if len(data) > MAX_META_PROPERTIES_BYTES:
        raise FormatError(f"{len(data)} bytes, at most {MAX_META_PROPERTIES_BYTES} are read")
    properties = {}
    position = 0
    for raw in data.splitlines(keepends=True):
        line = raw.decode("latin-1").strip()
        if line and line[0] not in "#!":
            found = _LINE.fullmatch(line)
            if found is None:
                raise FormatError("a line that is not key=value", position)
            properties[_ESCAPE.sub(r"\1", found[1])] = _ESCAPE.sub(r"\1", found[2])
        position += len(raw)
    return properties


def _node_id(text: str | None) -> int | None:
    if text is None or text == "-1":
        return None
    if not _NODE_ID.fullmatch(text) or int(text) >= 2**31:
        raise FormatError(f"node id {text[:20]!r} is not in 0..2^31-1")
    return int(text)


def _directory_id(text: str | None) -> Uuid | None:
    if text is None:
        return None
    try:
        return Uuid.parse(text)
    except ValueError as error:
        raise FormatError(f"directory.id: {error}") from error
