"""A plain writer of segments in the layout of Aiven's plugin: as independent of the product as `aiven_reader`."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import zstandard
from Crypto.Cipher import AES
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.doubles.aiven_reader import HASH_BYTES, INDEX_NAMES, mask, xor


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
