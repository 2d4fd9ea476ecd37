"""The client side of the completions format; the prompt becomes the only user message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from tollhouse.inference.formats.adapter import without_content
from tollhouse.inference.formats.canonical.blocks import RefusalBlock, TextBlock, Turn
from tollhouse.inference.formats.canonical.request import CanonicalRequest
from tollhouse.inference.formats.chat_completions.usage import render_usage
from tollhouse.inference.formats.completions.stream_encoder import (
    CompletionsStreamEncoder,
    render_choice,
    render_completion,
)
from tollhouse.inference.formats.fields import read_typed
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.response import CanonicalResponse, Choice
    from tollhouse.inference.formats.completions.request import CompletionsRequest
    from tollhouse.inference.types import ReplyIdentity

_SAMPLING: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "logit_bias",
)


class _Body(Struct):
    prompt: str | list[str]
    stream: bool | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None


_body: Final = msgspec.json.Decoder(_Body)


class CompletionsClientFormat:
    """Implements `formats.canonical.ports.ClientFormat`."""

    def __init__(self, request: CompletionsRequest) -> None:
        self._request = request

    def parse_request(self) -> CanonicalRequest:
        """Return the request in canonical form.

        Raises:
            Invalid: A field is of the wrong type, or the prompt is not one string: chat models
                take neither several prompts nor token ids.
        """
        read = read_typed(_body, self._request.body)
        prompts = [read.prompt] if isinstance(read.prompt, str) else read.prompt
        if len(prompts) != 1:
            message = "prompt: this model takes one text at a time; send a request for each."
            raise Invalid(message)
        fields = self._request.fields
        return CanonicalRequest(
            turns=(Turn("user", (TextBlock(prompts[0]),)),),
            stream=bool(read.stream),
            max_tokens=read.max_tokens,
            stop=(read.stop,) if isinstance(read.stop, str) else tuple(read.stop or ()),
            choices=read.n,
            user=read.user,
            sampling={name: fields[name] for name in _SAMPLING if fields.get(name, NULL) != NULL},
        )

    def without_content(self, prompt: CanonicalRequest | None) -> CompletionsClientFormat:
        """Return a copy without the conversation's content."""
        del prompt
        return CompletionsClientFormat(without_content(self._request))

    def render_response(
        self, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
    ) -> bytes:
        """Return a text completion."""
        choices = [
            render_choice(choice.index, _said(choice), choice.finish_reason)
            for choice in reply.choices
        ]
        return render_completion(identity, choices, usage=render_usage(charge, is_byok=False))

    def stream_encoder(self, identity: ReplyIdentity) -> CompletionsStreamEncoder:
        """Return the encoder of one stream."""
        return CompletionsStreamEncoder(self._request.fields, identity)


def _said(choice: Choice) -> str:
    return "".join(
        each.text for each in choice.blocks if isinstance(each, (TextBlock, RefusalBlock))
    )
