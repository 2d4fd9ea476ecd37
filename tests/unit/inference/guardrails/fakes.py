"""Guardrails that a test leads."""

import asyncio
from dataclasses import dataclass, field

from tests.support.seams.inference import ALLOWED, GuardrailVerdict, OnFailure

FAILED = GuardrailVerdict("failed", reason="HeadTimeout")


@dataclass
class FakeGuardrail:
    """Gives every request the same verdict, when the test lets it."""

    verdict: GuardrailVerdict | Exception = ALLOWED
    on_failure: OnFailure = "refuse"
    ready: asyncio.Event | None = None
    questions: list[bytes] = field(default_factory=list)
    cancelled: int = 0
    closed: int = 0

    async def ask(self, question: bytes) -> GuardrailVerdict:
        self.questions.append(question)
        try:
            if self.ready is not None:
                await self.ready.wait()
        except BaseException:
            self.cancelled += 1
            raise
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    async def close(self) -> None:
        self.closed += 1
