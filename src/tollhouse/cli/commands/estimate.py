"""`tollhouse estimate`: what would become of a request, and what it may cost."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.estimates import estimate_report
from tollhouse.cli.output import Report
from tollhouse.kernel.start import StartError

RequestFile = Annotated[
    str,
    typer.Argument(metavar="FILE", help="The request's body as JSON; - reads standard input."),
]
Endpoint = Annotated[
    str,
    typer.Option(
        metavar="ENDPOINT",
        help="The format of the body: chat/completions, responses, messages, completions or "
        "embeddings.",
    ),
]


async def estimate(
    server: Server, file: RequestFile, endpoint: Endpoint = "chat/completions"
) -> Report:
    """Show what a request would cost, who would be asked, and which limit would refuse it.

    Nothing is sent to a provider, held or charged. Needs an API key.
    """
    asked = {"endpoint": endpoint, "body": _body(file)}
    return estimate_report((await server.send("POST", "/estimate", asked))["data"])


def _body(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        found: object = json.loads(text)
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror})"
        raise StartError(message) from None
    except (ValueError, RecursionError) as error:
        message = f"{file} is no JSON: {error}"
        raise StartError(message) from None
    if not isinstance(found, dict):
        message = f"{file} must hold a JSON object, the body of a request"
        raise StartError(message)
    return cast("dict[str, Any]", found)
