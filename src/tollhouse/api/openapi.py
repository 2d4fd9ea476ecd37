"""The OpenAPI document: what FastAPI knows of the control plane, made whole.

    from the routes      parameters, bodies, replies, descriptions
    hot_routes.yaml      the same of the routes that are served without the framework
    samples.yaml         examples of some operations
    added here           server, bearer keys, the error envelope of every refusal

The paths carry no version segment; the server's address ends in it. Building the document takes
some 400 ms, so it is done once, when somebody asks.

Source: OpenAPI Specification 3.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml
from fastapi.openapi.utils import get_openapi

from tollhouse.api.request_rules import is_open
from tollhouse.kernel.wire import refusals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

Schema = dict[str, Any]

SERVER: Final = "/v1"
"""Relative to where the document was read from, so it fits every host name."""

BEARER: Final = "bearer"
HOT_ROUTES: Final = Path(__file__).with_name("hot_routes.yaml")
SAMPLES: Final = Path(__file__).with_name("samples.yaml")
_ANTHROPICS: Final = "anthropic-version"
"""The header with which clients of Anthropic's ask for its shapes, those of errors too."""
_FIRST_ERROR_STATUS = 400
_FRAMEWORKS_REFUSAL = "422"
_FRAMEWORKS_SCHEMAS = ("HTTPValidationError", "ValidationError")
_DESCRIPTION = """\
A self-hosted inference gateway. Inference needs an API key, management a management key; the
catalogue needs none. Every error is the same envelope with an integer `code`, which is the HTTP
status.
"""
_TAGS: Final = {
    "Chat": "Inference in the format of OpenAI's chat completions.",
    "Responses": "Inference in the format of OpenAI's responses.",
    "Messages": "Inference in the format of Anthropic's messages.",
    "Completions": "Texts that are continued.",
    "Embeddings": "Texts to vectors.",
    "Batches": "Many requests at once, run in the background.",
    "Estimates": "What a request would cost, and whether it would be let through.",
    "Models": "What this installation offers.",
    "Keys": "The calling key, and the keys of an account.",
    "Budgets": "What workspaces, users' keys and end users may use together.",
    "Own provider keys": "A customer's own keys of providers, asked before the gateway's own.",
    "Generations": "What is known of one reply.",
    "Credits": "Prepaid credits, and what they were used for.",
    "Ledger": "Whether the books are right, and what they say.",
    "Workspaces": "The scopes inside an account.",
    "Accounts": "Who pays.",
    "Users": "The people of an account.",
    "Interns": "Agents in sandboxes: create, start, talk to, suspend and delete them.",
    "Vault": "Secrets that interns use and never see, each bound to the hosts that may get it.",
    "Vault upkeep": "Keys that seal the vault, and secrets from elsewhere. For operators.",
    "Audit": "The record of what was done, for operators and auditors.",
}
_ERROR: Final[Schema] = {
    "title": "Error",
    "type": "object",
    "description": "The envelope of every error.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "integer", "description": "The HTTP status."},
                "message": {"type": "string", "description": "What happened and what to do."},
                "metadata": {
                    "type": ["object", "null"],
                    "description": "Further facts, such as `error_type` or `provider_name`.",
                    "additionalProperties": True,
                },
            },
        }
    },
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the description of the whole API, of which `app` is the control plane."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=_DESCRIPTION,
        routes=app.routes,
        servers=[{"url": SERVER}],
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
    )
    schemas = document["components"]["schemas"]
    hot = yaml.safe_load(HOT_ROUTES.read_text(encoding="utf-8"))
    for path, methods in hot["paths"].items():
        document["paths"].setdefault(path, {}).update(methods)
    for name, schema in hot["components"]["schemas"].items():
        schemas[name] = {"title": name, **schema}
    for name in _FRAMEWORKS_SCHEMAS:
        schemas.pop(name, None)
    schemas["Error"] = _ERROR
    samples = yaml.safe_load(SAMPLES.read_text(encoding="utf-8"))
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _complete(method, path, operation)
            _add_samples(operation, **samples.get(operation["operationId"], {}))
    document["components"]["securitySchemes"] = {
        BEARER: {"type": "http", "scheme": "bearer", "description": "A key, `sk-th-v1-...`."}
    }
    document["security"] = [{BEARER: []}]
    return document


def render_openapi(app: FastAPI) -> bytes:
    """Return the description of the whole API as JSON."""
    return msgspec.json.encode(openapi_document(app))


def _complete(method: str, path: str, operation: Schema) -> None:
    errors = [operation.pop("x-error-schema", "Error")]
    if any(each["name"] == _ANTHROPICS for each in operation.get("parameters", ())):
        errors.append("MessagesError")
    refused = refusals(*operation.pop("x-refusals", ()))
    responses = {**operation["responses"], **{str(status): refused[status] for status in refused}}
    operation["responses"] = {
        status: _with_envelope(status, response, errors)
        for status, response in responses.items()
        if not _is_frameworks(status, response)
    }
    if is_open(method.upper(), path):
        operation["security"] = []


def _add_samples(
    operation: Schema, body: object = None, code: Mapping[str, str] | None = None
) -> None:
    if body is not None:
        request = operation["requestBody"]
        media = {**request["content"]["application/json"], "example": body}
        operation["requestBody"] = {**request, "content": {"application/json": media}}
    if code is not None:
        operation["x-codeSamples"] = [
            {"lang": "Python", "label": label, "source": source} for label, source in code.items()
        ]


def _is_frameworks(status: str, response: Schema) -> bool:
    """Tell whether the framework put a refusal there by itself; a route's own has no schema yet."""
    return status == _FRAMEWORKS_REFUSAL and "content" in response


def _with_envelope(status: str, response: Schema, errors: Sequence[str]) -> Schema:
    if int(status) < _FIRST_ERROR_STATUS:
        return response
    schemas = [{"$ref": f"#/components/schemas/{name}"} for name in errors]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {**response, "content": {"application/json": {"schema": schema}}}
