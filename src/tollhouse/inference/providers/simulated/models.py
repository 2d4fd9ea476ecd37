"""The models of the simulated provider, and how each behaves."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from tollhouse.accounting.types import FREE, Price, Rates
from tollhouse.inference.types import Dialect, Endpoint, Model

SLUG = "simulated"
"""The author of the simulated models, and their provider where none is configured."""
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


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a simulated model answers."""

    description: str
    pause_seconds: float = 0.0
    """Before every piece of a reply."""
    fails: bool = False
    """Every reply breaks: a stream after its first pieces, a whole reply before anything."""
    refuses: int | None = None
    """The HTTP status with which every request is refused."""
    price: Price = _PRICE
    dialect: Dialect = Dialect.CHAT


BEHAVIOURS: dict[str, Behaviour] = {
    "echo": Behaviour("Repeats the last user message. Simulated: no model is asked."),
    "echo:free": Behaviour("The same as simulated/echo, without a charge.", price=FREE),
    "slow": Behaviour("Repeats the last user message, a word each 200 ms.", pause_seconds=0.2),
    "broken": Behaviour("Breaks off every reply, as a provider does that dies.", fails=True),
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
                ),
            ),
        )
        for name, behaviour in BEHAVIOURS.items()
    )
