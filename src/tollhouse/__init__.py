"""Tollhouse: a self-hosted inference gateway.

An OpenAI- and Anthropic-compatible API in front of any model provider, with prepaid credits. The
packages form layers, from `cli` at the top to `kernel` at the bottom; each imports only lower ones.
`CONTRIBUTING.md` lists them.
"""

from __future__ import annotations

__version__ = "0.1.0"
