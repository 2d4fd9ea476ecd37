"""`tollhouse generation`: what is known of one reply."""

from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import control_command, noun
from tollhouse.cli.output import Record

app = noun("generation", "Generations: single replies and what they cost.")


@control_command(
    app,
    "show",
    "TOLLHOUSE_API_KEY=sk-th-v1-... tollhouse generation show gen-... --base-url URL",
    by_key=True,
)
async def show(
    server: Server,
    generation: Annotated[
        str, typer.Argument(metavar="ID", help="The reply's id, or its X-Generation-Id.")
    ],
) -> Record:
    """Show a reply and its charge; needs a key that may see it."""
    return Record((await server.get("/generation", id=generation))["data"])
