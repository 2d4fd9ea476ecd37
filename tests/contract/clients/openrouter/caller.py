"""Callers of `openrouter`, and what its models hold, as JSON. Environment: BASE_URL."""

import json
import os

import httpx
from openrouter import OpenRouter
from openrouter.utils import RetryConfig


def client(key: str, keep=None) -> OpenRouter:
    """Return a caller; `keep` gets every response of the wire."""
    hooks = {"response": [keep]}
    return OpenRouter(
        api_key=key,
        server_url=os.environ["BASE_URL"],
        client=keep and httpx.Client(timeout=30, event_hooks=hooks, follow_redirects=True),
        # Without it a 502 would be tried again for an hour.
        retry_config=RetryConfig("none", None, retry_connection_errors=False),
    )


def dump(model) -> dict:
    return json.loads(model.model_dump_json(warnings=False))


def shown(model) -> dict:
    return json.loads(model.model_dump_json(by_alias=True))
