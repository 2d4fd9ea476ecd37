"""Has every conversation in each of OpenAI's formats with the `openai` library.

Environment: as `cells`.
"""

import os
from functools import partial

import conversations
import openai
from chat_format import Chat, TextCompletions
from openai.types import CreateEmbeddingResponse
from responses_format import Responses

OPTIONS = {"base_url": os.environ["BASE_URL"], "max_retries": 0}
VECTORS = {"model": "embeddings/embedding-2026", "input": ["one two", "three"]}


class Embeddings:
    """`client.embeddings`: nothing to stream."""

    def __init__(self, client) -> None:
        self.create = client.embeddings.create
        self.raw = client.embeddings.with_raw_response.create

    def fields(self, model, feature) -> dict:
        return {"model": model, "input": {"no": "text"} if feature == "error invalid" else "one"}


def vectors(spoken, _dialect, _feature) -> dict:
    """Return what the library makes of base64, which it asks for unless told, and of numbers."""
    text = spoken.raw(**VECTORS, encoding_format="float").text
    numbers = CreateEmbeddingResponse.model_validate_json(text, strict=True)
    unpacked = spoken.create(**VECTORS)
    usage = unpacked.usage
    return {
        "indexes": [item.index for item in unpacked.data],
        "same": [item.embedding for item in unpacked.data]
        == [item.embedding for item in numbers.data],
        "filled": all(len(item.embedding) > 1 for item in unpacked.data),
        "usage": [usage.prompt_tokens, usage.total_tokens, usage.model_extra["cost"]],
    }


def error(spoken, dialect, feature) -> dict:
    """Return the library's exception, whole and streamed."""
    fields = spoken.fields(conversations.model_of(dialect, feature), feature)
    if feature in {"error invalid", "error no-key"}:
        behaviour = "embedding-2026" if dialect == "embeddings" else "echo"
        fields["model"] = f"{dialect}/{behaviour}"
    client = nobody if feature == "error no-key" else shared
    creates = {
        Chat: client.chat.completions.create,
        Responses: client.responses.create,
        TextCompletions: client.completions.create,
        Embeddings: client.embeddings.create,
    }
    create = partial(creates[type(spoken)], **fields)
    if type(spoken) is Embeddings:
        return {"whole": refusal(create)}
    return {
        "whole": refusal(create),
        "streamed": refusal(lambda: failed(list(create(stream=True)))),
    }


def failed(events) -> dict | None:
    """Return what the last event of responses says: the library raises nothing for it."""
    last = events[-1]
    if getattr(last, "type", None) != "response.failed":
        return None
    return {"class": last.type, "status": last.response.status, "code": last.response.error.code}


def refusal(call) -> dict:
    try:
        seen = call()
    except openai.APIStatusError as error:
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": error.code,
            "retry after": error.response.headers.get("retry-after"),
        }
    except openai.APIError as error:
        return {"class": type(error).__name__, "code": error.code}
    return seen if isinstance(seen, dict) else {"class": None}


shared = openai.OpenAI(**OPTIONS, api_key=os.environ["API_KEY"])
nobody = openai.OpenAI(**OPTIONS, api_key="nobody")
with shared, nobody:
    conversations.run(
        {
            "openai chat": Chat(shared),
            "openai responses": Responses(shared),
            "openai completions": TextCompletions(shared),
            "openai embeddings": Embeddings(shared),
        },
        {"vectors": vectors, "error": error},
    )
