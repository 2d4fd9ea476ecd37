"""The models of the simulated provider and their behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from tollhouse.accounting.types import FREE, Price, Rates
from tollhouse.inference.types import Dialect, Endpoint, Model, Profile

SLUG = "simulated"
"""The author of the simulated models, and their provider if none is configured."""
_CONTEXT = 131_072
_ONE_DOLLAR_A_MILLION = Decimal("0.000001")
_PRICE = Price(
    Rates(
        prompt=_ONE_DOLLAR_A_MILLION,
        completion=2 * _ONE_DOLLAR_A_MILLION,
        cache_read=_ONE_DOLLAR_A_MILLION / 10,
        cache_write=_ONE_DOLLAR_A_MILLION,
        cache_write_1h=_ONE_DOLLAR_A_MILLION,
    )
)
_PROFILE: Final = Profile(takes_reasoning_as="reasoning_details")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a simulated model responds."""

    description: str
    reply_kind: Literal["echo", "calls", "script", "refusal"] = "echo"
    """echo: repeats the prompt, and calls a tool if it must; calls: calls tools if it can;
    script: runs the script in the prompt; refusal: refuses."""
    thinks: bool = False
    """Whether it reasons unless disabled; its reasoning must be sent back unchanged."""
    pause_seconds: float = 0.0
    """Pause before every piece of a response."""
    fails: bool = False
    """Whether every response fails: a stream after its first pieces, others before any output."""
    refuses: int | None = None
    """The HTTP status with which every request is rejected."""
    alternates: bool = False
    """Whether every other request of a process fails with 502, beginning with the first."""
    price: Price = _PRICE
    dialect: Dialect = Dialect.CHAT


BEHAVIOURS: dict[str, Behaviour] = {
    "echo": Behaviour("Repeats the last user message. Simulated: no model is asked."),
    "echo:free": Behaviour("The same as simulated/echo, without a charge.", price=FREE),
    "tools": Behaviour(
        "Calls the first two tools, or one if it may call one at a time; repeats their results.",
        reply_kind="calls",
    ),
    "agent": Behaviour(
        "Follows the script in a prompt, a call of a tool at a time; says what scripts look like.",
        reply_kind="script",
    ),
    "reasoning": Behaviour(
        "Thinks, then repeats the last user message. Takes its thoughts back only unchanged.",
        thinks=True,
    ),
    "refusal": Behaviour("Refuses to answer, in a reply that succeeds.", reply_kind="refusal"),
    "slow": Behaviour("Repeats the last user message, a word each 200 ms.", pause_seconds=0.2),
    "broken": Behaviour("Breaks off every reply, as a provider does that dies.", fails=True),
    "flaky": Behaviour(
        "Fails every other request (502) before the first byte, beginning with the first.",
        alternates=True,
    ),
    "limited": Behaviour("Refuses every request with a rate limit (429).", refuses=429),
    "overloaded": Behaviour("Refuses every request as overloaded (503).", refuses=503),
    "embedding": Behaviour(
        "Turns a text into a vector that says nothing but which text it was.",
        dialect=Dialect.EMBEDDINGS,
    ),
}


def models(provider: str = SLUG) -> tuple[Model, ...]:
    """Return the catalogue entries of the simulated models, served by a provider's slug."""
    return tuple(
        Model(
            id=f"{SLUG}/{name}",
            name=f"Simulated: {name}",
            description=behaviour.description,
            context_length=_CONTEXT,
            max_completion_tokens=None,
            endpoints=(
                Endpoint(
                    provider=provider,
                    model=name,
                    price=behaviour.price,
                    dialects=frozenset({behaviour.dialect}),
                    profile=_PROFILE,
                ),
            ),
        )
        for name, behaviour in BEHAVIOURS.items()
    )
