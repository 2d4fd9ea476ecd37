"""`tollhouse serve`: the gateway itself."""

import gc
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tollhouse.cli import banner
from tollhouse.cli.client import load_settings
from tollhouse.cli.control import examples
from tollhouse.cli.options import Config, DatabaseUrl, DataDir, Json
from tollhouse.cli.output import write
from tollhouse.cli.target import Folder

if TYPE_CHECKING:
    from tollhouse.apps.serve import Started

PROGRAM = "tollhouse"


app = typer.Typer(
    name="serve",
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog=examples(
        "tollhouse serve",
        "tollhouse serve --port 9000 --data-dir ./data --config tollhouse.yaml",
    ),
)


@app.callback()
def serve(
    context: typer.Context,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Address to listen on; 127.0.0.1 unless set."),
    ] = None,
    # A text: the settings check it, as they check the same from a file or the environment.
    port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Port to listen on; 8080 unless set, 0 for a free one."),
    ] = None,
    data_dir: DataDir = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="json, console or auto.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the gateway until it gets SIGTERM or Ctrl-C.

    The first start on a data folder makes an account, its credits and its keys, and shows the keys
    this once. Logs go to standard error, and to a file that `tollhouse logs` shows.
    """
    if context.invoked_subcommand is not None:
        return
    # A start makes objects that stay; the server collects again when it serves.
    gc.disable()
    settings = load_settings(
        Folder(data_dir, config),
        host=host,
        port=port,
        database_url=database_url,
        log_level=log_level,
        log_format=log_format,
    )

    def announce(started: "Started") -> None:
        serving = _serving(started)
        text = banner.as_json(serving) if as_json else banner.as_text(serving, _program())
        write(text)

    if settings.server.discover_local_models:
        from tollhouse.apps.discovery import with_local_models

        settings = with_local_models(settings)

    from tollhouse.apps.ground import take_ground

    with take_ground(settings) as ground:
        # Large, and loaded while a new file's schema is being made.
        from tollhouse.apps.serve import serve as run

        raise typer.Exit(run(settings, ground, announce))


@app.command(
    hidden=True,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def egress(context: typer.Context) -> None:
    """Run the egress proxy, which puts secrets in. `tollhouse serve` starts it by itself."""
    from tollhouse.apps.egress import options_of, run_egress

    run_egress(options_of(context.args))


def _serving(started: "Started") -> banner.Serving:
    first = started.first
    return banner.Serving(
        address=started.address,
        data_dir=started.folder.path,
        api_key=None if first is None else first.api_key,
        management_key=None if first is None else first.management_key,
        account_id=None if first is None else first.account_id,
        workspace_id=None if first is None else first.workspace_id,
        example_model=started.example_model,
    )


def _program() -> str:
    """Return how to call this program again: in a checkout it is not on the path."""
    called = sys.argv[0]
    if shutil.which(PROGRAM) is None and called.endswith(f"/{PROGRAM}"):
        return shlex.quote(called)
    return PROGRAM
