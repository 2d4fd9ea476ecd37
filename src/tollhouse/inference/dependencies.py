"""What every generation uses: providers, admission, settlement, own keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.limits import AccountingRules
from tollhouse.inference import routing
from tollhouse.inference.admission import allowed_candidates, demand_of, output_limits
from tollhouse.inference.own_routing import OwnKeyUse, usable_by
from tollhouse.inference.routing import Health
from tollhouse.inference.steps import Steps
from tollhouse.kernel.eager_task import in_task
from tollhouse.kernel.errors import Unroutable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tollhouse.accounting.admission.types import AdmissionRequest, Admitted
    from tollhouse.identity.types import Subject
    from tollhouse.inference.guardrails import Guardrails
    from tollhouse.inference.ports import (
        Admission,
        OwnAllowance,
        OwnKeySource,
        Provider,
        Settlement,
    )
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.types import ExcludedEndpoint, Model
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.errors import ProviderFailure
    from tollhouse.observability.metrics import Metrics
    from tollhouse.provider_keys.types import OwnKey

_NONE: Final = OwnKeyUse()
_NO_FEE: Final = Fraction(0)
_ONLY_OWN: Final = "Only own provider keys could serve the batch, and none that it may use is left."


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
    own_keys: OwnKeySource | None = None
    allowance: OwnAllowance | None = None
    """None where no request with own keys is free of a fee."""

    async def candidates(
        self,
        request: InferenceRequest,
        models: Sequence[Model],
        on_excluded: Callable[[ExcludedEndpoint], None] = lambda _: None,
    ) -> Sequence[Candidate]:
        """Return the endpoints that can serve a request now: `routing.find_candidates`."""
        return self.candidates_with(
            await self.own_keys_of(request.subject), request, models, on_excluded
        )

    def candidates_with(
        self,
        use: OwnKeyUse,
        request: InferenceRequest,
        models: Sequence[Model],
        on_excluded: Callable[[ExcludedEndpoint], None] = lambda _: None,
    ) -> Sequence[Candidate]:
        """Do the same, once it is known which own keys the caller may use."""
        now, health = self.clock.monotonic(), self.health
        found = routing.find_candidates(
            models,
            request.adapters,
            request.preferences,
            dialects_of=lambda endpoint: self.providers[endpoint.provider].dialects,
            cooling=lambda endpoint: health.is_cooling(endpoint, now),
            policies=request.subject.policies,
            own_keys=use,
            on_excluded=on_excluded,
        )
        if request.only_own_keys:
            found = [each for each in found if each.own_key is not None]
            if not found:
                raise Unroutable(_ONLY_OWN)
        return found

    async def own_keys_of(self, subject: Subject) -> OwnKeyUse:
        """Return the own keys that a caller may use; a look-up for accounts that have none."""
        use = self.known_own_keys(subject)
        if use is None and self.own_keys is not None:
            await in_task()
            use = self._use_of(await self.own_keys.read(subject.account_id), subject)
        return use or _NONE

    def known_own_keys(self, subject: Subject) -> OwnKeyUse | None:
        """Return the same without waiting; None where they have to be read."""
        if self.own_keys is None:
            return _NONE
        keys = self.own_keys.known(subject.account_id)
        return None if keys is None else self._use_of(keys, subject)

    def _use_of(self, keys: Sequence[OwnKey], subject: Subject) -> OwnKeyUse:
        if not keys:
            return _NONE
        now = self.clock.monotonic()
        return OwnKeyUse(
            usable_by(keys, subject),
            lambda key: self.health.key_cools(key, now),
            lambda endpoint: self.health.is_out(endpoint, now),
        )

    def admitted(
        self,
        request: InferenceRequest,
        wanted: AdmissionRequest,
        admitted: Admitted,
        candidates: Sequence[Candidate],
    ) -> Sequence[Candidate]:
        """Note what a request may cost; return the candidates that the account's limits leave."""
        most = admitted.own_spendable_nano if wanted.own_key else admitted.spendable_nano
        request.estimate_nano = wanted.maximum_nano if most is None else most
        allowed = allowed_candidates(wanted, candidates, may_use_free=admitted.may_use_free)
        if admitted.is_limited:
            request.output_limits = output_limits(demand_of(request), allowed, admitted)
        return allowed

    async def limit_output(self, request: InferenceRequest, candidate: Candidate) -> int | None:
        """Have a candidate write no more than is paid for; return the limit, if there is one.

        What candidates before it may cost can be less, as with own keys.
        """
        shared, own = request.output_limits or (None, None)
        limit, lowest = shared if candidate.own_key is None else own, request.output_limit
        if limit is not None and (lowest is None or limit < lowest):
            request.output_limit = limit
            await self.steps.limit_output(request, limit)
        return request.output_limit

    def own_fee(self, request: InferenceRequest) -> Fraction | None:
        """Return the part of its price that a request costs that an own key served; else None."""
        if request.candidate is None or request.candidate.own_key is None:
            return None
        if not self.rules.own_fee or self.allowance is None:
            return self.rules.own_fee
        account, day = request.subject.account_id, request.received.at.date()
        is_free = self.allowance.is_free_own(request.generation_id, account, day)
        return _NO_FEE if is_free else self.rules.own_fee

    async def know_allowance(
        self, request: InferenceRequest, candidates: Sequence[Candidate]
    ) -> None:
        """Have admission know what is left of the allowance, for requests that it does not see."""
        if self.allowance is None or not self.rules.own_fee:
            return
        if any(each.own_key is not None for each in candidates):
            await in_task()
            await self.allowance.know(request.subject.account_id, request.subject.key_hashes)

    def failed(self, candidate: Candidate, error: ProviderFailure) -> None:
        """Note that a provider failed, and to a key's owner why it was not taken."""
        now, key = self.clock.monotonic(), candidate.own_key
        known = key is not None and self.health.key_cools(key, now)
        self.health.failed(candidate.endpoint, error, now, key)
        if key is not None and error.concerns_key and not known and self.own_keys is not None:
            self.own_keys.refused(key, error.message)

    def answered(self, candidate: Candidate) -> None:
        """Note that a provider accepted a request."""
        self.health.answered(candidate.endpoint, candidate.own_key)
        if candidate.own_key is not None and self.own_keys is not None:
            self.own_keys.accepted(candidate.own_key)
