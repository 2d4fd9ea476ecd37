"""The control plane: every route but the hot ones, on FastAPI.

Routes raise our errors; what the framework raises by itself (a body that does not fit, an unknown
path, a wrong method) becomes one of ours here, and all of them leave through `error_response`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tollhouse.api.errors import error_response, invalid_request, with_reason
from tollhouse.api.request_rules import below
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.kernel.errors import Bug, Invalid, MethodNotAllowed, NotFound, TollhouseError
from tollhouse.storage import failures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_INLINE: Final = (
    "Send documents and pictures inline with the request that is about them; "
    "POST /v1/batches takes its requests in its body."
)
_HISTORY: Final = (
    "Nothing is stored between requests: send the whole conversation to POST /v1/responses or "
    "POST /v1/chat/completions."
)
_INSTEAD: Final[Mapping[str, str]] = {
    "/files": _INLINE,
    "/uploads": _INLINE,
    "/images": "Ask a model that draws with POST /v1/chat/completions and `modalities`.",
    "/videos": "Ask the provider itself.",
    "/audio": "POST /v1/chat/completions passes recordings (`input_audio`) and spoken answers "
    "(`modalities`) on to models that know them.",
    "/realtime": "Stream from POST /v1/chat/completions or POST /v1/responses.",
    "/moderations": "A policy has patterns and guardrails that judge requests: "
    "PUT /v1/workspaces/{id}/policy.",
    "/rerank": "Compare the vectors of POST /v1/embeddings.",
    "/assistants": f"{_HISTORY} Agents that last are interns: POST /v1/interns.",
    "/threads": f"{_HISTORY} Agents that last are interns: POST /v1/interns.",
    "/conversations": _HISTORY,
    "/chat/completions": _HISTORY,
    "/responses": _HISTORY,
    "/vector_stores": "Compare the vectors of POST /v1/embeddings.",
    "/fine_tuning": "Fine-tune at the provider, and name the model it gives you in `models` of the "
    "settings.",
    "/evals": "Send the requests with POST /v1/batches, and judge the replies yourself.",
    "/containers": "Interns have a workspace to run programs in: POST /v1/interns.",
    "/messages/batches": "Use POST /v1/batches with the endpoint /v1/messages.",
    "/complete": "Use POST /v1/messages.",
}
"""Path -> what to use instead of what lies there and below."""


def not_offered(path: str) -> str | None:
    """Return what to tell a client that asks for an endpoint of another API; None otherwise."""
    found = next((root for root in _INSTEAD if below(path, (root,))), None)
    return None if found is None else f"/v1{found} is not offered here. {_INSTEAD[found]}"


TITLE: Final = "Tollhouse"
API_VERSION: Final = "1.0.0"
_ANTHROPICS: Final = "anthropic-version"
"""The header that every client of Anthropic's sends: it reads errors in the shape of messages."""
_NOT_FOUND = 404
_METHOD_NOT_ALLOWED = 405


def control_app(*routers: APIRouter) -> FastAPI:
    """Return the application of the control plane, with the routes of every slice.

    It expects the caller in the scope (`identity.access.set_caller`) and paths without the API's
    version segment. A failure that is not a `TollhouseError` is answered with a masked 500 and
    raised again after that, for the gate to log.
    """
    app = FastAPI(
        title=TITLE,
        version=API_VERSION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # A redirect would lead to a path without the version segment.
        redirect_slashes=False,
        # A client that names no content type means JSON: there is nothing else.
        strict_content_type=False,
        generate_unique_id_function=lambda route: route.name,
        # Its log records would carry the text of exceptions.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    for router in routers:
        app.include_router(router)
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    _answer_errors(app, routes)
    return app


def _answer_errors(app: FastAPI, routes: Sequence[APIRoute]) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        return _response(request, cast("TollhouseError", error))

    async def invalid(request: Request, error: Exception) -> Response:
        content_type = request.headers.get("content-type")
        errors = cast("RequestValidationError", error).errors()
        return _response(request, invalid_request(errors, content_type))

    async def unrouted(request: Request, error: Exception) -> Response:
        return _response(request, _from_framework(cast("HTTPException", error), request, routes))

    async def failed(request: Request, error: Exception) -> Response:
        return _response(request, failures.unavailable(error) or Bug(type(error).__name__))

    app.add_exception_handler(TollhouseError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Exception, failed)


def _response(request: Request, error: TollhouseError) -> Response:
    path = request.url.path
    shown = None
    if below(path, ("/messages",)) or _ANTHROPICS in request.headers:
        shown = FORMATS["/messages"].render_error(error, None)
    status, headers, body = error_response(with_reason(error, path), shown)
    response = Response(body, status)
    response.raw_headers.extend(headers)
    return response


def _from_framework(
    error: HTTPException, request: Request, routes: Sequence[APIRoute]
) -> TollhouseError:
    if error.status_code == _NOT_FOUND:
        where = " Two slashes stand in the path." if "//" in request.url.path else ""
        return NotFound(not_offered(request.url.path) or f"No such route.{where}")
    if error.status_code == _METHOD_NOT_ALLOWED:
        allowed = allowed_methods(routes, request.url.path)
        message = f"{request.method} is not allowed here; use {' or '.join(allowed)}."
        return MethodNotAllowed(message, allow=allowed)
    # The body could not be read: it is no UTF-8, nested too deeply, or has an endless number.
    return Invalid("The body is not readable JSON.")


def allowed_methods(routes: Sequence[APIRoute], path: str) -> tuple[str, ...]:
    """Return every method that a path has; the framework names those of its first route alone."""
    found = {
        method for route in routes if route.path_regex.match(path) for method in route.methods or ()
    }
    return tuple(sorted(found))
