"""Files of Aiven, written and read by code of their own."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import zstandard
from Crypto.Cipher import AES
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

# A plain reader of segments in the layout of Aiven's plugin, written from its description and from nothing of ours.
# It uses other libraries than the product, too: zstandard instead of cramjam, pycryptodome's AES instead of
# cryptography's, and its own OAEP over plain integers. It holds whole segments in memory.

HASH_BYTES: Final = 64
INDEX_NAMES: Final = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")


@dataclass(frozen=True)
class ReadSegment:
    """What the broker had. `indexes` by the manifest's names; that of transactions is None if there is none."""

    log: bytes
    indexes: Mapping[str, bytes | None]
    manifest: dict[str, Any]


def read_segment(objects: Mapping[str, bytes], private_keys: Mapping[str, bytes] | None = None) -> ReadSegment:
    """`objects` by suffix; `private_keys` in PEM by the id of their pair."""
    manifest = json.loads(objects["rsm-manifest"])
    assert str(manifest["version"]) == "1"
    key = aad = None
    if "encryption" in manifest:
        pair, wrapped = manifest["encryption"]["dataKey"].split(":")
        key = unwrapped(base64.b64decode(wrapped), (private_keys or {})[pair])
        aad = base64.b64decode(manifest["encryption"]["aad"])
    chunks, at = [], 0
    for size in stored_sizes(manifest["chunkIndex"]):
        chunk = opened(objects["log"][at : at + size], key, aad)
        chunks.append(decompressed(chunk) if manifest["compression"] else chunk)
        at += size
    assert at == len(objects["log"])
    original = manifest["chunkIndex"]["originalChunkSize"]
    assert all(len(chunk) == original for chunk in chunks[:-1])
    log = b"".join(chunks)
    assert len(log) == manifest["chunkIndex"]["originalFileSize"]
    indexes: dict[str, bytes | None] = {}
    for name in INDEX_NAMES:
        place = manifest["segmentIndexes"][name]
        if place is None:
            indexes[name] = None
            continue
        stored = objects["indexes"][place["position"] : place["position"] + place["size"]]
        assert len(stored) == place["size"]
        indexes[name] = opened(stored, key, aad) if stored else b""
    return ReadSegment(log, indexes, manifest)


def stored_sizes(index: dict[str, Any]) -> list[int]:
    if index["type"] == "variable":
        return unpacked(decompressed(base64.b64decode(index["transformedChunks"])))
    count = -(-index["originalFileSize"] // index["originalChunkSize"])
    return [index["transformedChunkSize"]] * (count - 1) + [index["finalTransformedChunkSize"]]


def unpacked(binary: bytes) -> list[int]:
    count = int.from_bytes(binary[:4], "big")
    if count < 2:
        return [int.from_bytes(binary[4:8], "big")] * count
    base, width = int.from_bytes(binary[4:8], "big"), binary[8]
    differing = [int.from_bytes(binary[9 + n * width :][:width], "big") for n in range(count - 1)]
    return [base + one for one in differing] + [int.from_bytes(binary[-4:], "big")]


def decompressed(frame: bytes) -> bytes:
    """The plugin sizes its buffer by the frame's content size, and refuses a frame without it."""
    size = zstandard.get_frame_parameters(frame).content_size
    assert size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
    content = zstandard.ZstdDecompressor().decompress(frame)
    assert len(content) == size
    return content


def opened(stored: bytes, key: bytes | None, aad: bytes | None) -> bytes:
    if key is None or aad is None:
        return stored
    cipher = AES.new(key, AES.MODE_GCM, nonce=stored[:12])
    cipher.update(aad)
    return cipher.decrypt_and_verify(stored[12:-16], stored[-16:])


def unwrapped(wrapped: bytes, private_key_pem: bytes) -> bytes:
    """RSAES-OAEP of RFC 8017, 7.1.2, with SHA3-512 for label and mask, and an empty label."""
    key = load_pem_private_key(private_key_pem, None)
    assert isinstance(key, RSAPrivateKey)
    numbers = key.private_numbers()
    size = (numbers.public_numbers.n.bit_length() + 7) // 8
    message = pow(int.from_bytes(wrapped, "big"), numbers.d, numbers.public_numbers.n).to_bytes(size, "big")
    masked_seed, masked_block = message[1 : 1 + HASH_BYTES], message[1 + HASH_BYTES :]
    seed = xor(masked_seed, mask(masked_block, HASH_BYTES))
    block = xor(masked_block, mask(seed, len(masked_block)))
    assert message[0] == 0
    assert block[:HASH_BYTES] == hashlib.sha3_512(b"").digest()
    padding, one, content = block[HASH_BYTES:].partition(b"\x01")
    assert one
    assert not padding.strip(b"\0")
    return content


def mask(seed: bytes, size: int) -> bytes:
    blocks = (hashlib.sha3_512(seed + n.to_bytes(4, "big")).digest() for n in range(-(-size // HASH_BYTES)))
    return b"".join(blocks)[:size]


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


# A plain writer of segments in the layout of Aiven's plugin: as independent of the product as `aiven_reader`.


def write_segment(
    log: bytes,
    indexes: Mapping[str, bytes | None],
    metadata: Mapping[str, Any],
    *,
    chunk_size: int,
    compress: bool = False,
    public_key: tuple[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Objects by suffix. `metadata` is the block for people; `public_key` is the id of a pair and its PEM."""
    key, aad = os.urandom(32), os.urandom(32)

    def sealed(content: bytes) -> bytes:
        if public_key is None:
            return content
        iv = os.urandom(12)
        cipher = AES.new(key, AES.MODE_GCM, nonce=iv)
        cipher.update(aad)
        body, tag = cipher.encrypt_and_digest(content)
        return iv + body + tag

    chunks = [log[at : at + chunk_size] for at in range(0, len(log), chunk_size)]
    if compress:
        chunks = [zstandard.ZstdCompressor(level=3).compress(chunk) for chunk in chunks]
    chunks = [sealed(chunk) for chunk in chunks]
    chunk_index: dict[str, Any] = {"originalChunkSize": chunk_size, "originalFileSize": len(log)}
    if compress:
        chunk_index |= {"type": "variable", "transformedChunks": encoded_sizes([len(chunk) for chunk in chunks])}
    else:
        overhead = 28 if public_key else 0
        chunk_index |= {
            "type": "fixed",
            "transformedChunkSize": chunk_size + overhead,
            "finalTransformedChunkSize": len(chunks[-1]),
        }
    stored = {name: None if (part := indexes[name]) is None else sealed(part) if part else b"" for name in INDEX_NAMES}
    places, at = {}, 0
    for name, part in stored.items():
        places[name] = None if part is None else {"position": at, "size": len(part)}
        at += len(part or b"")
    manifest: dict[str, Any] = {
        "version": "1",
        "chunkIndex": chunk_index,
        "segmentIndexes": places,
        "compression": compress,
        "remoteLogSegmentMetadata": metadata,
    }
    if public_key is not None:
        wrapped = base64.b64encode(wrapped_key(key, public_key[1])).decode()
        manifest["encryption"] = {"dataKey": f"{public_key[0]}:{wrapped}", "aad": base64.b64encode(aad).decode()}
    return {
        "log": b"".join(chunks),
        "indexes": b"".join(part or b"" for part in stored.values()),
        "rsm-manifest": json.dumps(manifest, separators=(",", ":")).encode(),
    }


def encoded_sizes(sizes: Sequence[int]) -> str:
    return base64.b64encode(zstandard.ZstdCompressor(level=3).compress(packed(sizes))).decode()


def packed(sizes: Sequence[int]) -> bytes:
    if len(sizes) < 2:
        return b"".join(number.to_bytes(4, "big") for number in (len(sizes), *sizes))
    base = min(sizes[:-1])
    width = next(n for n in (1, 2, 3, 4) if max(sizes[:-1]) - base < 256**n)
    head = len(sizes).to_bytes(4, "big") + base.to_bytes(4, "big") + bytes([width])
    return head + b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1]) + sizes[-1].to_bytes(4, "big")


def wrapped_key(content: bytes, public_key_pem: bytes) -> bytes:
    """RSAES-OAEP of RFC 8017, 7.1.1."""
    key = load_pem_public_key(public_key_pem)
    assert isinstance(key, RSAPublicKey)
    numbers = key.public_numbers()
    size = (numbers.n.bit_length() + 7) // 8
    block = hashlib.sha3_512(b"").digest()
    block += bytes(size - len(content) - 2 * HASH_BYTES - 2) + b"\x01" + content
    seed = os.urandom(HASH_BYTES)
    masked_block = xor(block, mask(seed, len(block)))
    masked_seed = xor(seed, mask(masked_block, HASH_BYTES))
    message = int.from_bytes(b"\0" + masked_seed + masked_block, "big")
    return pow(message, numbers.e, numbers.n).to_bytes(size, "big")
