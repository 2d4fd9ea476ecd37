"""The OpenAPI document: valid, complete, and true of the refusals."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from openapi_spec_validator import validate

from tests.support.seams.accounting import endpoints as accounting_endpoints
from tests.support.seams.api import HOT_ROUTES, SAMPLES, control_app, docs_files, render_openapi
from tests.support.seams.identity import endpoints as identity_endpoints
from tests.support.seams.inference import Catalog
from tests.support.seams.inference import endpoints as inference_endpoints

NOT_USED: Any = None
ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
ANTHROPICS = {"application/json": {"schema": {"$ref": "#/components/schemas/MessagesError"}}}
IN_ANTHROPICS_FORMAT = {"create_message", "count_message_tokens"}
EITHER = {
    "application/json": {
        "schema": {"anyOf": [each["application/json"]["schema"] for each in (ERROR, ANTHROPICS)]}
    }
}
IN_EITHER = {"list_models", "retrieve_model"}
"""In Anthropic's where the request has the header that its clients send."""
OPEN = {
    "list_models",
    "count_models",
    "get_model",
    "list_model_endpoints",
    "list_providers",
    "retrieve_model",
}
OPERATIONS = {
    "/accounts": {"get", "post"},
    "/accounts/{account_id}": {"get", "patch"},
    "/accounts/{account_id}/policy": {"get", "put"},
    "/activity": {"get"},
    "/chat/completions": {"post"},
    "/completions": {"post"},
    "/credits": {"get", "post"},
    "/embeddings": {"post"},
    "/estimate": {"post"},
    "/generation": {"get"},
    "/key": {"get"},
    "/keys": {"get", "post"},
    "/keys/{hash}": {"get", "patch", "delete"},
    "/keys/{hash}/policy": {"get", "put"},
    "/ledger/holders": {"get"},
    "/ledger/holders/{id}/write-off": {"post"},
    "/ledger/interrupted": {"get"},
    "/ledger/statement": {"get"},
    "/ledger/unknown": {"get"},
    "/ledger/verify": {"get"},
    "/messages": {"post"},
    "/messages/count_tokens": {"post"},
    "/model/{author}/{slug}": {"get"},
    "/models": {"get"},
    "/models/count": {"get"},
    "/models/{author}/{slug}/endpoints": {"get"},
    "/models/{name}": {"get"},
    "/providers": {"get"},
    "/responses": {"post"},
    "/users": {"get", "post"},
    "/users/{user_id}": {"get", "patch"},
    "/users/{user_id}/budgets": {"get"},
    "/users/{user_id}/budgets/{interval}": {"get", "put", "delete"},
    "/workspaces": {"get", "post"},
    "/workspaces/{id}": {"get", "patch", "delete"},
    "/workspaces/{id}/budgets": {"get"},
    "/workspaces/{id}/budgets/{interval}": {"get", "put", "delete"},
    "/workspaces/{id}/end-users/budgets": {"get"},
    "/workspaces/{id}/end-users/{end_user}/budgets": {"get"},
    "/workspaces/{id}/end-users/{end_user}/budgets/{interval}": {"get", "put", "delete"},
    "/workspaces/{id}/policy": {"get", "put"},
}


PASSES_FIELDS_ON = {
    "create_chat_completion",
    "create_response",
    "create_message",
    "count_message_tokens",
    "create_completion",
    "create_embeddings",
}
"""Operations that take fields which their schema does not list."""


async def not_used() -> None:
    """No route is called."""


@cache
def rendered() -> bytes:
    app = control_app(
        identity_endpoints.router(NOT_USED, NOT_USED),
        accounting_endpoints.router(
            NOT_USED, NOT_USED, NOT_USED, NOT_USED, ledger=NOT_USED, settled=not_used
        ),
        inference_endpoints.router(Catalog(()), {}),
    )
    return render_openapi(app)


@pytest.fixture
def document() -> dict[str, Any]:
    return json.loads(rendered())


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for methods in document["paths"].values():
        for operation in methods.values():
            yield operation["operationId"], operation


def test_is_valid(document: dict[str, Any]) -> None:
    validate(document)


def test_lists_every_operation_and_no_other(document: dict[str, Any]) -> None:
    assert {path: set(methods) for path, methods in document["paths"].items()} == OPERATIONS


def test_every_operation_has_its_own_id_a_description_and_one_known_tag(
    document: dict[str, Any],
) -> None:
    ids = [name for name, _ in operations(document)]
    tags = {tag["name"] for tag in document["tags"]}
    assert len(ids) == len(set(ids))
    for name, operation in operations(document):
        assert operation["description"], name
        assert len(operation["tags"]) == 1, name
        assert set(operation["tags"]) <= tags, name


def test_a_bearer_key_is_wanted_everywhere_but_in_the_catalogue(document: dict[str, Any]) -> None:
    scheme = document["components"]["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{"bearer": []}]
    assert {name for name, found in operations(document) if found.get("security") == []} == OPEN


def test_every_refusal_is_the_envelope(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        refused = {
            status: response["content"]
            for status, response in operation["responses"].items()
            if int(status) >= 400
        }
        assert refused, name
        envelope = ANTHROPICS if name in IN_ANTHROPICS_FORMAT else ERROR
        envelope = EITHER if name in IN_EITHER else envelope
        assert all(content == envelope for content in refused.values()), name
        # The chat with interns has names for whatever may happen.
        assert ("500" in refused) is (name != "createInternChatCompletion"), name
        assert ("401" in refused) is (name not in OPEN), name


def test_the_envelope_has_an_integer_code(document: dict[str, Any]) -> None:
    error = document["components"]["schemas"]["Error"]["properties"]["error"]

    assert error["required"] == ["code", "message"]
    assert error["properties"]["code"]["type"] == "integer"


def test_nothing_of_the_frameworks_own_refusals_is_left(document: dict[str, Any]) -> None:
    text = json.dumps(document)

    assert "ValidationError" not in text


def test_a_refusal_of_a_routes_own_is_left(document: dict[str, Any]) -> None:
    unprocessable = {name for name, found in operations(document) if "422" in found["responses"]}
    assert "create_chat_completion" in unprocessable
    assert "create_key" not in unprocessable


@pytest.mark.parametrize(
    ("path", "method", "statuses"),
    [
        ("/key", "get", {200, 401, 403, 500}),
        ("/keys", "get", {200, 400, 401, 404, 429, 500}),
        # The 404 is ours: an operator may name an account that there is not.
        ("/keys", "post", {201, 400, 401, 403, 404, 429, 500}),
        ("/keys/{hash}", "get", {200, 401, 404, 429, 500}),
        ("/keys/{hash}", "patch", {200, 400, 401, 403, 404, 409, 429, 500}),
        # The 403 is ours: only an operator revokes an operator's key.
        ("/keys/{hash}", "delete", {200, 401, 403, 404, 429, 500}),
        # The 400 is ours: `account_id` may be no text that can be an id.
        ("/workspaces/{id}", "get", {200, 400, 401, 403, 404, 500}),
    ],
)
def test_the_statuses_are_those_of_the_published_operation(
    document: dict[str, Any], path: str, method: str, statuses: set[int]
) -> None:
    assert {int(status) for status in document["paths"][path][method]["responses"]} == statuses


def test_every_field_is_documented(document: dict[str, Any]) -> None:
    bare = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if name != "Error" and not described.get("description") and "$ref" not in described
    ]
    assert bare == []


def test_every_parameter_is_documented(document: dict[str, Any]) -> None:
    bare = [
        f"{name} {parameter['name']}"
        for name, operation in operations(document)
        for parameter in operation.get("parameters", [])
        if not parameter.get("description")
    ]
    assert bare == []


def test_bodies_are_closed(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, operation in operations(document):
        if "requestBody" not in operation or name in PASSES_FIELDS_ON:
            continue
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert schemas[reference.rpartition("/")[2]]["additionalProperties"] is False, name


class TestDocs:
    def test_the_page_reads_the_document(self) -> None:
        files = docs_files()

        assert files["/docs"][1].startswith(b"<!doctype html>")
        assert b"/openapi.json" in files["/docs/page.js"][1]

    def test_no_file_names_another_host(self) -> None:
        files = docs_files()
        texts = {path: content.decode() for path, (_, content) in files.items()}

        assert all("://" not in text.replace("://127.0.0.1:8080", "") for text in texts.values())
        assert "default-src 'none'; connect-src 'self'; script-src 'self'" in texts["/docs"]
        assert set(re.findall(r'(?:src|href)="(/docs/[^"]+)"', texts["/docs"])) < set(files)

    def test_nothing_is_read_as_html(self) -> None:
        script = docs_files()["/docs/page.js"][1]

        assert b"innerHTML" not in script
        assert b"insertAdjacentHTML" not in script

    def test_a_typed_key_is_not_kept(self) -> None:
        script = docs_files()["/docs/page.js"][1]

        assert b"Storage" not in script
        assert b"cookie =" not in script


@pytest.fixture(scope="module")
def samples() -> dict[str, Any]:
    return yaml.safe_load(SAMPLES.read_text())


class TestSamples:
    def test_every_inference_operation_has_a_body_and_code(self, samples: dict[str, Any]) -> None:
        for methods in yaml.safe_load(HOT_ROUTES.read_text())["paths"].values():
            name = methods["post"]["operationId"]
            assert samples[name]["body"] is not None, name
            assert samples[name].get("code") or name == "estimate", name
