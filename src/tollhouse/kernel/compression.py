"""Zstandard: the standard library's from Python 3.14 on, before that its twin of another name.

Source: PEP 784; RFC 8878 for the format.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
