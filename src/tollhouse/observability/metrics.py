"""What the gateway counts, in Prometheus' format, on a registry of its own.

Names follow OpenTelemetry's `gen_ai` and HTTP conventions where those have one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector

from tollhouse.observability.merging import Family, Sample, merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The `_created` series double the output and say what the server's own log says.
disable_created_metrics()

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Every counter and gauge."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self.in_flight = gauge(
            "tollhouse_generations_in_flight", "Inference requests that are running."
        )
        self.unknown_finish_reasons = counter(
            "tollhouse_upstream_unknown_finish_reasons",
            "Replies that ended with a finish reason of the provider's that is not known.",
        )
        self.ambiguous_sends = counter(
            "tollhouse_upstream_ambiguous_sends",
            "Requests that may have reached a provider and got no answer.",
        )
        self._verdicts = counter(
            "tollhouse_guardrail_verdicts",
            "Answers of guardrails to requests: allowed, refused, or failed where none came.",
            ["guardrail", "verdict"],
        )
        self._generations = counter(
            "tollhouse_generations", "Inference requests that ended, by HTTP status.", ["status"]
        )
        self._refusals = counter(
            "tollhouse_http_refusals",
            "Requests that were refused before they reached a route, by HTTP status.",
            ["status"],
        )
        self._checks = counter(
            "tollhouse_invariant_checks",
            "Rounds in which an invariant was looked at: kept, broken, or failed to look.",
            ["invariant", "outcome"],
        )
        self._broken = gauge(
            "tollhouse_invariant_broken",
            "What was not as it has to be when an invariant was last found broken; 0: never.",
            ["invariant"],
        )
        self.interns_running = gauge(
            "tollhouse_interns_running", "Sandboxes of interns that run on this server."
        )
        self.interns_disk_full = gauge(
            "tollhouse_interns_disk_full",
            "Of these, those that can write no more, since their workspace or the disk is full.",
        )
        self._intern_limits = gauge(
            "tollhouse_intern_limit_enforced",
            "Whether this machine makes sandboxes keep a limit: 1, or 0.",
            ["limit"],
        )
        self._chats = counter(
            "tollhouse_intern_chats",
            "Chats with interns that ended: stop, tool_calls, steered, or the reason of the error.",
            ["outcome"],
        )
        self.intern_streams = gauge(
            "tollhouse_intern_chat_streams", "Streams of chats with interns that are open."
        )
        # `labels()` costs more than counting, and there are few statuses.
        self._by_status: dict[int, Counter] = {}

    def count_verdict(self, guardrail: str, verdict: str) -> None:
        """Count what a guardrail said of a request."""
        self._verdicts.labels(guardrail, verdict).inc()

    def count_generation(self, status: int) -> None:
        """Count an inference request that ended."""
        counter = self._by_status.get(status)
        if counter is None:
            counter = self._by_status[status] = self._generations.labels(str(status))
        counter.inc()

    def count_refusal(self, status: int) -> None:
        """Count a request that was refused before it reached a route."""
        self._refusals.labels(str(status)).inc()

    def count_chat(self, outcome: str) -> None:
        """Count a chat with an intern that ended, or never began."""
        self._chats.labels(outcome).inc()

    def count_check(self, invariant: str, outcome: str, broken: int = 0) -> None:
        """Count a look at an invariant, which was `kept` or `broken`, or `failed`.

        How much is broken stays until it is found again, since the next look may be at something
        else.
        """
        self._checks.labels(invariant, outcome).inc()
        gauge = self._broken.labels(invariant)
        if broken:
            gauge.set(broken)

    def set_limit(self, limit: str, *, enforced: bool) -> None:
        """Say whether sandboxes are made to keep a limit."""
        self._intern_limits.labels(limit).set(enforced)

    def report(self) -> list[Family]:
        """Return everything, to be merged with what other processes report."""
        return [
            Family(
                family.name,
                family.type,
                family.documentation,
                [Sample(each.name, each.labels, each.value) for each in family.samples],
            )
            for family in self.registry.collect()
        ]

    def render(self, others: Sequence[Family] = ()) -> bytes:
        """Return everything in Prometheus' text format, with what other processes report."""
        if not others:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        registry.register(_Merged(merge((self.report(), others))))
        return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.documentation, family.kind)
            for each in family.samples:
                metric.add_sample(each.name, each.labels, each.value)
            yield metric
