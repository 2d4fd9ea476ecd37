"""`/models` and `/models/{id}` in Anthropic's shapes, for requests with an `anthropic-version`.

Source: https://docs.anthropic.com/en/api/models-list and https://docs.anthropic.com/en/api/models
"""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import BaseModel, Field

from tollhouse.inference.types import Model
from tollhouse.kernel.wire import Reply

_DEFAULT_LIMIT: Final = 20
_NOT_KNOWN: Final = "1970-01-01T00:00:00Z"
"""What Anthropic says of a model whose release it does not know."""


class AnthropicModelsQuery(BaseModel):
    """Which part of the list is wanted by a client of Anthropic's."""

    after_id: str | None = Field(
        default=None, description="Anthropic's clients: the model behind which the part begins."
    )
    before_id: str | None = Field(
        default=None, description="Anthropic's clients: the model before which the part ends."
    )


class AnthropicModel(Reply):
    """A model, as Anthropic shows one."""

    type: Literal["model"] = "model"
    """Always model."""
    id: str
    """What requests name it by."""
    display_name: str
    """The name that users see."""
    created_at: str = _NOT_KNOWN
    """Always the epoch: not known."""
    lifecycle: Literal["active"] = "active"
    """Always active."""
    max_input_tokens: int
    """Tokens of input and output together."""
    max_tokens: int | None
    """Most output tokens of one reply; null: no such limit."""


class AnthropicModelsPage(Reply):
    """Part of the list of models, as Anthropic shows it."""

    data: list[AnthropicModel]
    """In the order of the settings."""
    has_more: bool
    """Whether there are others in the direction of the request."""
    first_id: str | None
    """The first of this part; null where it is empty."""
    last_id: str | None
    """The last of this part; null where it is empty."""


def anthropic_model(model: Model) -> AnthropicModel:
    """Return a model as Anthropic shows one."""
    return AnthropicModel(
        id=model.id,
        display_name=model.name,
        max_input_tokens=model.context_length,
        max_tokens=model.max_completion_tokens,
    )


def anthropic_page(
    models: Sequence[Model], query: AnthropicModelsQuery, limit: int | None
) -> AnthropicModelsPage:
    """Return a part of the list.

    Args:
        models: All of them.
        query: Where the part lies; an id that is not there counts as the list's beginning or end.
        limit: How many it has at most; Anthropic's default unless given.
    """
    ids = [model.id for model in models]
    size = limit or _DEFAULT_LIMIT
    if query.before_id in ids:
        end = ids.index(query.before_id)
        start = max(0, end - size)
        has_more = start > 0
    else:
        start = ids.index(query.after_id) + 1 if query.after_id in ids else 0
        end = min(len(ids), start + size)
        has_more = end < len(ids)
    shown = [anthropic_model(model) for model in models[start:end]]
    return AnthropicModelsPage(
        data=shown,
        has_more=has_more,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
    )
