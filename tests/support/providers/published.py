"""What the published libraries of OpenAI and Anthropic say that a request may hold.

    check_openai_response(fields)     raises `Refused`, as the provider refuses it

For a process of its own: only the modules with these types are imported, not the libraries around
them, which would take two seconds.
"""

import importlib
import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any, Final, cast

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError

from tests.support.providers.stub_text import JsonObject, Refused

_PACKAGES: Final = (
    *("openai", "openai.types", "openai.types.chat", "openai.types.responses"),
    *("openai.types.shared_params", "anthropic", "anthropic.types"),
)
_CHAT: Final = "openai.types.chat.completion_create_params.CompletionCreateParams"
_RESPONSE: Final = "openai.types.responses.response_create_params.ResponseCreateParams"
_MESSAGE: Final = "anthropic.types.message_create_params.MessageCreateParams"
_COUNT: Final = "anthropic.types.message_count_tokens_params.MessageCountTokensParams"
_CODES: Final = {
    "extra_forbidden": ("unknown_parameter", "Unknown parameter: '{}'."),
    "missing": ("missing_required_parameter", "Missing required parameter: '{}'."),
}

_TYPES: Final = {"str", "int", "float", "bool", "list"}
_TAGS: Final = {("type",), ("role",)}


def load() -> None:
    """Import the types, so that no request waits for them."""
    for name in (_CHAT, _RESPONSE, _MESSAGE, _COUNT):
        _validator(name)


def check_openai_chat(fields: JsonObject) -> None:
    """Refuse a chat whose known fields are wrong; compatible providers have further ones."""
    _check_openai(_CHAT, fields, extra="ignore")


def check_openai_response(fields: JsonObject) -> None:
    """Refuse a request of the responses API that holds anything else."""
    _check_openai(_RESPONSE, fields, extra="forbid")


def check_message(fields: JsonObject, *, counts: bool) -> None:
    """Refuse a message, or a request to count its tokens, that holds anything else."""
    if found := _first_fault(_COUNT if counts else _MESSAGE, fields, extra="forbid"):
        kind, at, message = found
        raise Refused(f"{at}: {message}" if kind != "json" else message)


def _check_openai(name: str, fields: JsonObject, *, extra: Any) -> None:
    if found := _first_fault(name, fields, extra=extra):
        kind, at, message = found
        code, text = _CODES.get(kind, ("invalid_type", f"Invalid '{{}}': {message}"))
        raise Refused(text.format(at), code=code, param=at)


def _first_fault(name: str, fields: JsonObject, *, extra: Any) -> tuple[str, str, str] | None:
    """Return kind, place and text of the deepest fault, in a variant of the right type."""
    try:
        _validator(name).validate_python(fields, strict=True, extra=extra)
    except ValidationError as wrong:
        faults = wrong.errors(include_url=False, include_input=False)
        others = {each["loc"][:-1] for each in faults if each["loc"][-1:] in _TAGS}
        meant = [
            each
            for each in faults
            if not any(each["loc"][:end] in others for end in range(len(each["loc"])))
        ]
        fault = max(meant or faults, key=lambda each: len(_place(each["loc"])))
        return fault["type"], ".".join(_place(fault["loc"])), fault["msg"]
    return None


def _place(loc: tuple[int | str, ...]) -> list[str]:
    """Return the names of fields and the numbers of items, without those of types."""
    return [str(each) for each in loc if isinstance(each, int) or _is_field(each)]


def _is_field(name: str) -> bool:
    return name.isidentifier() and name.islower() and name not in _TYPES


@cache
def _validator(name: str) -> SchemaValidator:
    module, _, kind = name.rpartition(".")
    for package in _PACKAGES:
        if package.partition(".")[0] == module.partition(".")[0] and package not in sys.modules:
            _import_bare(package)
    schema = TypeAdapter[Any](getattr(importlib.import_module(module), kind)).core_schema
    return SchemaValidator(_with_lists(schema))


def _import_bare(package: str) -> None:
    """Make a package known without running its `__init__`."""
    parent, _, leaf = package.rpartition(".")
    if parent:
        folders = [f"{folder}/{leaf}" for folder in sys.modules[parent].__path__]
    else:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        folders = list(spec.submodule_search_locations or ())
    module = sys.modules[package] = ModuleType(package)
    module.__path__ = folders


def _with_lists(schema: Any) -> Any:
    if isinstance(schema, dict):
        inner = {key: _with_lists(each) for key, each in cast("JsonObject", schema).items()}
        return inner | {"type": "list"} if inner.get("type") == "generator" else inner
    if isinstance(schema, (list, tuple)):
        listed = cast("list[Any]", schema)
        return type(schema)(_with_lists(each) for each in listed)
    return schema
