"""Has kept replies in OpenAI's formats read by the `openai` library's types, strictly.

Two things are the public gateway's and not OpenAI's: the finish reason `error`, and a chunk with an
`error`, on which the library raises before it reads the rest. A completion that goes on has no
finish reason, whatever its type says. A response that failed as its context was full says so in
a code that OpenAI's service has and the type has not. Environment: as `replies`.
"""

import json

from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from replies import Parser, check_replies

EVENT = TypeAdapter(ResponseStreamEvent)


def check(model, text: str) -> None:
    fields = json.loads(text)
    if "error" in fields:
        assert isinstance(fields["error"]["message"], str)
        return
    for choice in fields["choices"]:
        if choice["finish_reason"] == "error" or (
            model is Completion and choice["finish_reason"] is None
        ):
            choice["finish_reason"] = "stop"
    model.model_validate_json(json.dumps(fields), strict=True)


def response_event(text: str) -> None:
    fields = json.loads(text)
    error = (fields.get("response") or {}).get("error") or {}
    if error.get("code") == "context_length_exceeded":
        error["code"] = "invalid_prompt"
    EVENT.validate_json(json.dumps(fields), strict=True)


def embeddings(text: str) -> None:
    fields = json.loads(text)
    for each in fields["data"]:
        if isinstance(each["embedding"], str):
            each["embedding"] = []  # the library asks for base64, and reads it itself
    CreateEmbeddingResponse.model_validate_json(json.dumps(fields), strict=True)


def parser(whole, event) -> Parser:
    return Parser(lambda text: check(whole, text), lambda text: check(event, text))


check_replies(
    {
        "chat/completions": parser(ChatCompletion, ChatCompletionChunk),
        "completions": parser(Completion, Completion),
        "embeddings": Parser(embeddings, embeddings),
        "responses": Parser(
            lambda text: Response.model_validate_json(text, strict=True),
            response_event,
        ),
    }
)
