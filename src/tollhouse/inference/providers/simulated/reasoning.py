"""What a simulated model thinks, and the signature by which it knows its thoughts again. Pure.

A stream's details come in pieces, and a client may send them back as they came, or added up field
by field. So the format stands with the signature, which vouches for all text since the one before.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tollhouse.inference.providers.simulated.request import InvalidSimulatedRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tollhouse.inference.providers.simulated.request import (
        SimulatedMessage,
        SimulatedReasoningDetail,
    )

FORMAT: Final = "simulated-v1"
"""Whose details these are."""


def think(question: str) -> str:
    """Return the thoughts about what was asked."""
    return f"Simulated reasoning: {len(question.split())} words came, and no model has read them."


def sign(text: str) -> str:
    """Return what vouches for thoughts. It proves nothing to anybody else: there is no secret."""
    return sha256(f"{FORMAT}\0{text}".encode()).hexdigest()


def verify(messages: Sequence[SimulatedMessage]) -> None:
    """Refuse a history in which thoughts were changed, as providers do.

    Raises:
        InvalidSimulatedRequest: A signature does not fit its text, or is missing.
    """
    for index, message in enumerate(messages):
        if not _fits(message.reasoning_details or ()):
            raise InvalidSimulatedRequest(
                f"messages[{index}].reasoning_details: the signature does not fit the text."
            )


def _fits(details: Iterable[SimulatedReasoningDetail]) -> bool:
    text = ""
    for detail in details:
        text += detail.text or ""
        if detail.format == FORMAT and detail.signature != sign(text):
            return False
        if detail.format is not None or detail.signature is not None:
            text = ""
    return True
