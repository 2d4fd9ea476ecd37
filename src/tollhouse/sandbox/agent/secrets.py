"""What the gateway says of the intern's secrets: their names and hosts, asked once in each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import openai
from pydantic import BaseModel, ValidationError

from tollhouse.sandbox.agent.instructions import secrets_told

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_SECONDS: Final = 10.0


class _Secret(BaseModel):
    name: str
    hosts: list[str] | None


class _Page(BaseModel):
    data: list[_Secret]
    has_more: bool


class SecretsNote:
    """The part of a run's instructions that names secrets."""

    def __init__(self, client: AsyncOpenAI, intern_id: str) -> None:
        """Take how the gateway is asked, and for whom; nothing is asked yet."""
        self._client = client.with_options(timeout=_SECONDS)
        self._path = f"/vault/interns/{intern_id}/effective-secrets"
        self._text: str | None = None

    async def text(self) -> str:
        """Return it; empty where the gateway does not say."""
        if self._text is None:
            self._text = await self._asked()
        return self._text

    async def _asked(self) -> str:
        try:
            answer = await self._client.get(self._path, cast_to=str)
            page = _Page.model_validate_json(answer)
        except (openai.OpenAIError, ValidationError):
            return ""  # a model that is not told of secrets can still do its work
        return secrets_told([(each.name, each.hosts) for each in page.data], has_more=page.has_more)
