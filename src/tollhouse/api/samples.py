"""Examples of operations: a body to send, and the same call with published client libraries.

They stand in the OpenAPI document: a body as the `example` of the request, code as `x-codeSamples`,
which renderers of documentation know. Each is run by the contract tests as it stands, with address
and key replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ORIGIN: Final = "http://127.0.0.1:8080"
"""Stands in every example for the installation's own address."""
API_KEY: Final = "sk-th-v1-..."
"""Stands in every example for the caller's key."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The examples of an operation."""

    body: Mapping[str, Any] | None = None
    """What to send; None where nothing is sent."""
    code: Mapping[str, str] = field(default_factory=dict[str, str])
    """Python by the name of the library that it calls."""


def _openai(call: str) -> str:
    setup = f"""\
        from openai import OpenAI

        client = OpenAI(base_url="{ORIGIN}/v1", api_key="{API_KEY}")
        """
    return dedent(setup) + dedent(call)


def _anthropic(call: str) -> str:
    setup = f"""\
        from anthropic import Anthropic

        client = Anthropic(base_url="{ORIGIN}", auth_token="{API_KEY}")
        """
    return dedent(setup) + dedent(call)


def _openrouter(call: str) -> str:
    setup = f"""\
        from openrouter import OpenRouter

        with OpenRouter(server_url="{ORIGIN}/v1", api_key="{API_KEY}") as client:
        """
    return dedent(setup) + indent(dedent(call), "    ")


_MESSAGES: Final = [{"role": "user", "content": "What is a toll house?"}]

SAMPLES: Final[Mapping[str, Sample]] = {
    "create_chat_completion": Sample(
        {"model": "simulated/echo", "messages": _MESSAGES, "max_tokens": 200},
        {
            "openai": _openai("""\
                stream = client.chat.completions.create(
                    model="simulated/echo",
                    messages=[{"role": "user", "content": "What is a toll house?"}],
                    max_tokens=200,
                    stream=True,
                )
                for chunk in stream:
                    if chunk.choices:
                        print(chunk.choices[0].delta.content or "", end="")
                """),
            "openrouter": _openrouter("""\
                reply = client.chat.send(
                    model="simulated/echo",
                    messages=[{"role": "user", "content": "What is a toll house?"}],
                    max_tokens=200,
                )
                print(reply.choices[0].message.content, reply.usage.cost)
                """),
        },
    ),
    "create_response": Sample(
        {"model": "simulated/echo", "input": "What is a toll house?", "max_output_tokens": 200},
        {
            "openai": _openai("""\
                reply = client.responses.create(
                    model="simulated/echo", input="What is a toll house?", max_output_tokens=200
                )
                print(reply.output_text)
                """),
            "openrouter": _openrouter("""\
                reply = client.beta.responses.send(
                    model="simulated/echo", input="What is a toll house?", max_output_tokens=200
                )
                print(reply.output[0].content[0].text)
                """),
        },
    ),
    "create_message": Sample(
        {"model": "simulated/echo", "messages": _MESSAGES, "max_tokens": 200},
        {
            "anthropic": _anthropic("""\
                reply = client.messages.create(
                    model="simulated/echo",
                    messages=[{"role": "user", "content": "What is a toll house?"}],
                    max_tokens=200,
                )
                print(reply.content[0].text)
                """),
            "anthropic, streamed": _anthropic("""\
                with client.messages.stream(
                    model="simulated/echo",
                    messages=[{"role": "user", "content": "What is a toll house?"}],
                    max_tokens=200,
                ) as stream:
                    for text in stream.text_stream:
                        print(text, end="")
                """),
        },
    ),
    "count_message_tokens": Sample(
        {"model": "simulated/echo", "messages": _MESSAGES},
        {
            "anthropic": _anthropic("""\
                count = client.messages.count_tokens(
                    model="simulated/echo",
                    messages=[{"role": "user", "content": "What is a toll house?"}],
                )
                print(count.input_tokens)
                """),
        },
    ),
    "create_completion": Sample(
        {"model": "simulated/echo", "prompt": "A toll house is", "max_tokens": 200},
        {
            "openai": _openai("""\
                reply = client.completions.create(
                    model="simulated/echo", prompt="A toll house is", max_tokens=200
                )
                print(reply.choices[0].text)
                """),
        },
    ),
    "create_embeddings": Sample(
        {"model": "simulated/embedding", "input": ["toll", "house"]},
        {
            "openai": _openai("""\
                reply = client.embeddings.create(
                    model="simulated/embedding", input=["toll", "house"]
                )
                print([len(each.embedding) for each in reply.data])
                """),
            "openrouter": _openrouter("""\
                reply = client.embeddings.generate(
                    model="simulated/embedding", input=["toll", "house"]
                )
                print([len(each.embedding) for each in reply.data])
                """),
        },
    ),
    "estimate": Sample(
        {
            "endpoint": "chat/completions",
            "body": {"model": "simulated/echo", "messages": _MESSAGES, "max_tokens": 200},
        }
    ),
    "create_batch": Sample(
        {
            "endpoint": "/v1/chat/completions",
            "model": "simulated/echo",
            "requests": [{"custom_id": "first", "body": {"messages": _MESSAGES}}],
        },
        {
            "openrouter": _openrouter("""\
                batch = client.batch.create_batches(
                    endpoint="/v1/chat/completions",
                    model="simulated/echo",
                    requests=[
                        {
                            "custom_id": "first",
                            "body": {
                                "messages": [{"role": "user", "content": "What is a toll house?"}]
                            },
                        }
                    ],
                )
                print(batch.id, batch.status)
                """),
        },
    ),
    "list_models": Sample(
        code={
            "openai": _openai("""\
                print([model.id for model in client.models.list()])
                """),
            "openrouter": _openrouter("""\
                print([model.id for model in client.models.list().result.data])
                """),
        }
    ),
    "get_own_key": Sample(
        code={
            "openrouter": _openrouter("""\
                key = client.api_keys.get_current_key_metadata().data
                print(key.label, key.usage, key.limit_remaining)
                """),
        }
    ),
    "create_key": Sample({"name": "ci", "limit": 5, "limit_reset": "monthly"}),
    "create_intern": Sample({"name": "ada", "instructions": "Answer briefly."}),
    "put_secret": Sample({"value": "the secret", "hosts": ["api.example.com"]}),
}
