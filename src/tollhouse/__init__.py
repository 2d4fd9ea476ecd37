"""Tollhouse: a self-hosted inference gateway.

An OpenAI- and Anthropic-compatible API in front of any model provider, with prepaid credits. The
packages form floors, `cli` at the top and `kernel` at the bottom; each imports only what stands
below it. `CONTRIBUTING.md` has the map.
"""

from __future__ import annotations

__version__ = "0.1.0"
