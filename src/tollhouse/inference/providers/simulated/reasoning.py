"""Simulated reasoning and its signature, which is verified when it is sent back. Pure.

A stream sends details in pieces, and a client may send them back in pieces or merged field by
field. The format is therefore set with the signature, which covers all text since the last one.
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
"""The `format` of signed simulated reasoning."""


def think(question: str) -> str:
    """Return the reasoning about a question."""
    return f"Simulated reasoning: {len(question.split())} words came, and no model has read them."


def sign(text: str) -> str:
    """Return the signature of reasoning: a hash without a secret."""
    return sha256(f"{FORMAT}\0{text}".encode()).hexdigest()


def verify(messages: Sequence[SimulatedMessage]) -> None:
    """Reject a history in which reasoning was changed, as providers do.

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
