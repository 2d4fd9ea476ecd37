"""Zstandard: the standard library's from Python 3.14 on, before that its twin of another name.

Source: PEP 784, https://pypi.org/project/backports.zstd
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
