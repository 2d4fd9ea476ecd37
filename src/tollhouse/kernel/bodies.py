"""Bodies that are read only after their sender was judged, by a route itself.

    bodies = Bodies(largest=1_048_576)
    routes.put(..., dependencies=[Depends(gate), Depends(bodies.read)])
    body = bodies.parsed(request, WriteBody)

No refusal repeats anything of what was sent: it may be a secret.
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


class Bodies:
    """Reads the bodies of some routes."""

    def __init__(self, largest: int, *, declared: bool = False) -> None:
        """Say what is accepted.

        Args:
            largest: Bytes of the largest one.
            declared: Whether one that is not empty has to say that it is JSON.
        """
        self._largest = largest
        self._declared = declared

    async def read(self, request: Request) -> None:
        """Leave the whole body in the request's state; stands behind the gate of a route.

        Raises:
            PayloadTooLarge: It is over the limit; known from its declared length, or as it comes.
            UnsupportedMediaType: It does not say that it is JSON.
            Invalid: It was not sent to its end.
        """
        raw = await self._gathered(request)
        if raw and self._declared and not _says_json(request.headers.get("content-type")):
            message = f"Send the body as JSON, with Content-Type: {_JSON}."
            raise UnsupportedMediaType(message)
        setattr(request.state, _BODY, raw)

    async def _gathered(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        too_large = PayloadTooLarge(f"The request body is larger than {self._largest} bytes.")
        if declared.isdigit() and int(declared) > self._largest:
            raise too_large
        gathered = bytearray()
        try:
            async for piece in request.stream():
                gathered += piece
                if len(gathered) > self._largest:
                    raise too_large
        except ClientDisconnect:
            message = "The body was not sent to its end."
            raise Invalid(message) from None
        return bytes(gathered)

    def parsed(self, request: Request, model: type[T], *, empty: T | None = None) -> T:
        """Return the body that `read` left.

        Args:
            request: The request.
            model: What it has to be.
            empty: What an empty body means; None where there has to be one.

        Raises:
            RequestValidationError: It does not fit the model.
            Invalid: It is no readable JSON.
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
            message = "The body is not readable JSON."
            raise Invalid(message) from None


def described(body: type[BaseModel], *, required: bool = True) -> Mapping[str, Any]:
    """Return what the document of the API says of such a body."""
    content = {_JSON: {"schema": body.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


def _says_json(content_type: str | None) -> bool:
    return content_type is not None and content_type.partition(";")[0].strip().lower() == _JSON
