"""`tollhouse key`: the key that the command itself shows to a server."""

from tollhouse.cli.client import Server
from tollhouse.cli.control import control_command, noun
from tollhouse.cli.output import Record

app = noun("key", "The key in TOLLHOUSE_API_KEY.")


@control_command(
    app,
    "show",
    "TOLLHOUSE_API_KEY=sk-th-v1-... tollhouse key show",
    "TOLLHOUSE_API_KEY=sk-th-v1-... tollhouse key show --base-url URL",
    by_key=True,
)
async def show(server: Server) -> Record:
    """Show what the server knows about the key: its use, its limits, its scope."""
    return Record((await server.get("/key"))["data"])
