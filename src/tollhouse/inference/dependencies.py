"""What every generation uses: the providers, the books, and what is known of their health."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tollhouse.accounting.limits import AccountingRules
from tollhouse.inference import routing
from tollhouse.inference.routing import Health
from tollhouse.inference.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tollhouse.inference.guardrails import Guardrails
    from tollhouse.inference.ports import Admission, Provider, Settlement
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.types import ExcludedEndpoint, Model
    from tollhouse.kernel.clock import Clock
    from tollhouse.observability.metrics import Metrics


@dataclass(frozen=True, slots=True)
class PipelineDependencies:
    """What every generation uses."""

    providers: Mapping[str, Provider]
    admission: Admission
    settlement: Settlement
    clock: Clock
    metrics: Metrics
    guardrails: Guardrails
    health: Health = field(default_factory=Health)
    rules: AccountingRules = field(default_factory=AccountingRules)
    steps: Steps = field(default_factory=Steps)

    def candidates(
        self,
        request: InferenceRequest,
        models: Sequence[Model],
        on_excluded: Callable[[ExcludedEndpoint], None] = lambda _: None,
    ) -> Sequence[Candidate]:
        """Return the endpoints that can serve a request now: `routing.find_candidates`."""
        now = self.clock.monotonic()
        return routing.find_candidates(
            models,
            request.adapters,
            request.preferences,
            dialects_of=lambda endpoint: self.providers[endpoint.provider].dialects,
            cooling=lambda endpoint: self.health.is_cooling(endpoint, now),
            policies=request.subject.policies,
            on_excluded=on_excluded,
        )
