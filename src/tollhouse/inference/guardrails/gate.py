"""Asks the guardrails that a caller's policies name, all at once; a request passes or does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from tollhouse.inference.guardrails.verdicts import decide, named, no_verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.identity.types import Subject
    from tollhouse.inference.guardrails.base import Guardrail, GuardrailVerdict
    from tollhouse.observability.metrics import Metrics

_log = structlog.get_logger(__name__)


class Guardrails:
    """Every configured guardrail."""

    def __init__(self, guardrails: Mapping[str, Guardrail], metrics: Metrics) -> None:
        """Take the guardrails by slug, and where their verdicts are counted."""
        self._guardrails = guardrails
        self._metrics = metrics
        self._lenient = {slug for slug, each in guardrails.items() if each.on_failure == "allow"}

    async def check(
        self,
        subject: Subject,
        asks: Callable[[], Awaitable[bytes]],
        generation_id: str | None = None,
    ) -> None:
        """Let a request pass that every guardrail of its caller's policies lets pass.

        Args:
            subject: Whose request it is.
            asks: Returns the question that they are asked: `verdicts.question`.
            generation_id: The id that the reply will have; None where nothing is generated.

        Raises:
            Forbidden: A guardrail refused it; the metadata has the patterns that it found.
            Unavailable: One that must let it pass gave no verdict, or is not configured.
            Invalid: It holds a number that nobody can read.
        """
        names = named(subject.policies)
        if not names:
            return
        unknown = [name for name in names if name not in self._guardrails]
        if unknown:
            _log.error("guardrail_not_configured", guardrails=unknown)
            raise no_verdict(unknown, "of a policy is not configured")
        verdicts = await self._ask(names, await asks())
        for name, verdict in verdicts.items():
            self._note(name, verdict, generation_id)
        decide(verdicts, self._lenient)

    async def close(self) -> None:
        """Give up every connection."""
        for guardrail in self._guardrails.values():
            await guardrail.close()

    async def _ask(self, names: Sequence[str], asked: bytes) -> Mapping[str, GuardrailVerdict]:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(self._guardrails[name].ask(asked)) for name in names}
        return {name: task.result() for name, task in tasks.items()}

    def _note(self, name: str, verdict: GuardrailVerdict, generation_id: str | None) -> None:
        self._metrics.judged(name, verdict.outcome)
        if verdict.outcome == "failed":
            _log.warning(
                "guardrail_failed",
                guardrail=name,
                reason=verdict.reason,
                let_pass=name in self._lenient,
                generation=generation_id,
            )
