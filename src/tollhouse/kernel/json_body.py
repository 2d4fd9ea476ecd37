"""JSON bodies that a route reads only after it has judged their sender.

    bodies = JsonBodyReader(largest=1_048_576)
    routes.put(..., dependencies=[Depends(gate), Depends(bodies.read)])
    body = bodies.parsed(request, WriteBody)

No error repeats anything of what was sent: it may be a secret.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from tollhouse.kernel.errors import Invalid, PayloadTooLarge, UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T", bound=BaseModel)
_BODY: Final = "tollhouse_body"
_JSON: Final = "application/json"


class JsonBodyReader:
    """Reads and parses the bodies of some routes, of at most `largest` bytes.

    Where it has to be `declared`, a body that is not empty needs a Content-Type of JSON.
    """

    def __init__(self, largest: int, *, declared: bool = False) -> None:
        self._largest = largest
        self._declared = declared

    async def read(self, request: Request) -> None:
        """Put the whole body into the request's state; a dependency behind the route's gate.

        Raises:
            PayloadTooLarge: It is over the limit, by its declared length or as it arrives.
            UnsupportedMediaType: It is not declared as JSON.
            Invalid: It was not sent to its end.
        """
        raw = await self._received(request)
        if raw and self._declared and not _says_json(request.headers.get("content-type")):
            raise UnsupportedMediaType(f"Send the body as JSON, with Content-Type: {_JSON}.")
        setattr(request.state, _BODY, raw)

    async def _received(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        too_large = PayloadTooLarge(f"The request body is larger than {self._largest} bytes.")
        if declared.isdigit() and int(declared) > self._largest:
            raise too_large
        received = bytearray()
        try:
            async for piece in request.stream():
                received += piece
                if len(received) > self._largest:
                    raise too_large
        except ClientDisconnect:
            raise Invalid("The body was not sent to its end.") from None
        return bytes(received)

    def raw(self, request: Request) -> bytes:
        """Return the body that `read` has put into the request's state, as it came."""
        raw: bytes = getattr(request.state, _BODY)
        return raw

    def parsed(self, request: Request, model: type[T], *, empty: T | None = None) -> T:
        """Parse the body that `read` has put into the request's state; `empty` is an empty body's.

        Raises:
            RequestValidationError: It does not fit the model, or is empty and must not be.
            Invalid: It is not readable JSON.
        """
        raw: bytes = getattr(request.state, _BODY)
        if not raw:
            if empty is not None:
                return empty
            raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": ""}])
        try:
            return model.model_validate(json.loads(raw))
        except json.JSONDecodeError as error:
            place = {"type": "json_invalid", "loc": ("body", error.pos), "msg": ""}
            raise RequestValidationError([{**place, "ctx": {"error": error.msg}}]) from None
        except ValidationError as error:
            found = error.errors(include_input=False, include_url=False, include_context=False)
            errors = [{**each, "loc": ("body", *each["loc"])} for each in found]
            raise RequestValidationError(errors) from None
        except (ValueError, RecursionError):
            # No UTF-8, an endless number, or nested too deeply.
            raise Invalid("The body is not readable JSON.") from None


def body_schema(body: type[BaseModel], *, required: bool = True) -> Mapping[str, Any]:
    """Return the body's part of the operation in the OpenAPI document."""
    content = {_JSON: {"schema": body.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


def _says_json(content_type: str | None) -> bool:
    return content_type is not None and content_type.partition(";")[0].strip().lower() == _JSON
