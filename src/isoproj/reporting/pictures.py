"""Write grey images as PNG, which every browser shows."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def png_data(image: NDArray[Any], low: float, high: float) -> str:
    """Return a grey image as base64 text of a PNG file.

    The value ``low`` is black, ``high`` is white; the text belongs behind
    ``data:image/png;base64,``.
    """
    height, width = image.shape
    scale = 255.0 / (high - low) if high > low else 0.0
    grey = np.clip((image - low) * scale, 0.0, 255.0).astype(np.uint8)
    # Every line of a PNG begins with the number of its filter; 0 is none.
    lines = np.hstack([np.zeros((height, 1), dtype=np.uint8), grey])
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (
        _chunk(b"IHDR", head),
        _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
        _chunk(b"IEND", b""),
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    """Return a chunk of a PNG file: length, kind, content, checksum."""
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
