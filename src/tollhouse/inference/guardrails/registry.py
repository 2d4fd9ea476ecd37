"""From settings to guardrails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.guardrails.gate import Guardrails
from tollhouse.inference.guardrails.http import HttpGuardrail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.inference.upstream.port import Upstream
    from tollhouse.observability.metrics import Metrics
    from tollhouse.settings.sections import GuardrailSettings


def build_guardrails(
    guardrails: Sequence[GuardrailSettings], upstream: Callable[[], Upstream], metrics: Metrics
) -> Guardrails:
    """Return the configured guardrails.

    Args:
        guardrails: Their settings; the slugs differ.
        upstream: Makes the transport of each.
        metrics: Where verdicts are counted.
    """
    return Guardrails({each.slug: _guardrail(each, upstream()) for each in guardrails}, metrics)


def _guardrail(settings: GuardrailSettings, upstream: Upstream) -> HttpGuardrail:
    return HttpGuardrail(
        url=settings.url,
        headers=[(name, value.reveal()) for name, value in settings.headers.items()],
        seconds=settings.timeout_seconds,
        on_failure=settings.on_failure,
        upstream=upstream,
    )
