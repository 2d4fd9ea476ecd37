"""`tollhouse serve`: its options, as its help shows them; `serving` does the work."""

from typing import Annotated

import typer
from typer import Option

from tollhouse.cli.control import examples
from tollhouse.cli.options import Config, DatabaseUrl, DataDir, Json
from tollhouse.cli.serving import ServeOptions, run_server

app = typer.Typer(
    name="serve",
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog=examples(
        "tollhouse serve", "tollhouse serve --port 9000 --data-dir ./data --config tollhouse.yaml"
    ),
)


@app.callback()
def serve(
    context: typer.Context,
    host: Annotated[
        str | None, Option(metavar="HOST", help="Address to listen on; 127.0.0.1 unless set.")
    ] = None,
    # A text: the settings check it, as they check the same from a file or the environment.
    port: Annotated[
        str | None,
        Option(metavar="PORT", help="Port to listen on; 8080 unless set, 0 for a free one."),
    ] = None,
    workers: Annotated[
        str | None,
        Option(
            metavar="N|auto",
            help="Processes that answer requests to models, auto: one for each CPU; 1 unless set. "
            "With more, SIGHUP replaces one after the other, without a request that fails.",
        ),
    ] = None,
    data_dir: DataDir = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    log_level: Annotated[
        str | None, Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[
        str | None, Option(metavar="FORMAT", help="json, console or auto.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the gateway until it gets SIGTERM or Ctrl-C.

    The first start on a data folder makes an account, its credits and its keys, and shows the keys
    this once. Logs go to standard error, and to a file that `tollhouse logs` shows.
    """
    if context.invoked_subcommand is not None:
        return
    raise typer.Exit(
        run_server(
            ServeOptions(
                host, port, data_dir, config, database_url, log_level, log_format, as_json, workers
            )
        )
    )


@app.command(
    hidden=True,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def egress(context: typer.Context) -> None:
    """Run the egress proxy, which puts secrets in. `tollhouse serve` starts it by itself."""
    from tollhouse.apps.egress import options_of, run_egress

    run_egress(options_of(context.args))
