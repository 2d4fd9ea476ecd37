"""`tollhouse models`: the catalogue."""

from tollhouse.cli.client import Server
from tollhouse.cli.control import control_command, noun
from tollhouse.cli.output import Column, Listing, field
from tollhouse.cli.values import price_per_million

app = noun("models", "Models: what the gateway can be asked for.")


@control_command(app, "list", "tollhouse models list", "tollhouse models list --json")
async def list_(server: Server) -> Listing:
    """List the models with their prices in USD for a million tokens; needs no key."""
    columns = [
        field("id"),
        field("context_length", "context"),
        Column("input $/m", lambda model: price_per_million(model["pricing"]["prompt"])),
        Column("output $/m", lambda model: price_per_million(model["pricing"]["completion"])),
        field("name"),
    ]
    return Listing((await server.get("/models"))["data"], columns)
