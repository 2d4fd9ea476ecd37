"""What `tollhouse serve` does with its options, and what it says once it serves.

The usual options are read here, as `commands.serve` declares them. Whatever else stands on the
command line (`--help`, a mistake, another spelling) is for that one, which knows what to say to it.
"""

import gc
import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

from tollhouse.cli.client import load_settings
from tollhouse.cli.output import write
from tollhouse.cli.target import origin

if TYPE_CHECKING:
    from tollhouse.apps.startup import Started
    from tollhouse.settings.sections import Settings

PROGRAM = "tollhouse"
_COMMAND: Final = "serve"
_PATHS: Final = frozenset(("data_dir", "config"))
_TEXTS: Final = frozenset(("host", "port", "workers", "database_url", "log_level", "log_format"))


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `serve`; None where the file, the environment or the default decides."""

    host: str | None = None
    port: str | None = None
    data_dir: Path | None = None
    config: Path | None = None
    database_url: str | None = field(default=None, repr=False)
    log_level: str | None = None
    log_format: str | None = None
    as_json: bool = False
    workers: str | None = None

    @classmethod
    def parse(cls, args: Sequence[str]) -> Self | None:
        """Read a command line that is `serve` with known options, each once and with a value.

        None where it is anything else.
        """
        if args[:1] != [_COMMAND]:
            return None
        given: dict[str, Any] = {}
        rest = iter(args[1:])
        for each in rest:
            option, separator, value = each.partition("=")
            name = option.removeprefix("--").replace("-", "_")
            if each == "--json" and "as_json" not in given:
                given["as_json"] = True
                continue
            if not separator:
                value = next(rest, "")
            is_known = option == f"--{name.replace('_', '-')}" and name in _PATHS | _TEXTS
            if not is_known or name in given or not value or value.startswith("-"):
                return None
            given[name] = Path(value) if name in _PATHS else value
        return cls(**given)

    def settings(self) -> "Settings":
        """Return the settings that they mean; StartError if one is wrong."""
        settings = load_settings(
            self.data_dir,
            self.config,
            host=self.host,
            port=self.port,
            workers=self.workers,
            database_url=self.database_url,
            log_level=self.log_level,
            log_format=self.log_format,
        )
        if settings.server.discover_local_models:
            from tollhouse.apps.discovery import with_local_models

            settings = with_local_models(settings)
        return settings

    @classmethod
    def of_texts(cls, texts: Mapping[str, str | None]) -> Self:
        """Return those of which `texts` was returned."""
        given: dict[str, Any] = dict(texts)
        for name in _PATHS:
            given[name] = given[name] and Path(given[name])
        return cls(**given)

    def texts(self) -> dict[str, str | None]:
        """Return those that say something about the settings."""
        given = {name: getattr(self, name) for name in (*_PATHS, *_TEXTS)}
        return {name: None if value is None else str(value) for name, value in given.items()}


def run_server(options: ServeOptions) -> int:
    """Run the gateway until it is told to stop, and return the exit code.

    Raises:
        StartError: It cannot start; nothing half-made is left behind.
    """
    # A start makes objects that stay; the server collects again when it serves.
    gc.disable()
    settings = options.settings()

    def announce(started: "Started") -> None:
        write(banner_json(started) if options.as_json else banner_text(started, _program()))

    load_structlog()
    from tollhouse.apps.startup import acquire_resources

    with acquire_resources(settings) as resources:
        if len(resources.listeners) > 1:
            from tollhouse.apps.processes.supervisor import supervise

            return supervise(settings, resources, options.texts(), announce)
        # Large: a start that is refused by now did not wait for it.
        from tollhouse.apps.serve import serve

        return serve(settings, resources, announce)


def load_structlog() -> None:
    """Load the library of our log without rich, with which it would format stack traces.

    No log of ours has one, and rich costs a start 25 ms and the server 3 MB for good.
    """
    if "structlog" in sys.modules:
        return
    modules = cast("dict[str, object]", sys.modules)
    modules["rich"] = None  # an import fails, as where it is not installed
    import_module("structlog")
    del modules["rich"]


def banner_json(started: "Started") -> str:
    """Return one line of JSON; the keys are null unless this is a first start."""
    address, first = origin(started.address), started.first
    names = ("api_key", "management_key", "account_id", "workspace_id")
    return json.dumps(
        {
            "address": address,
            "base_url": f"{address}/v1",
            "data_dir": str(started.folder.path),
            **{name: getattr(first, name, None) for name in names},
            "example_model": started.example_model,
        }
    )


def banner_text(started: "Started", program: str) -> str:
    """Return lines for a person; the keys of a first start stand here and nowhere else.

    The program is how this one was called, for the commands that are shown.
    """
    base_url, folder = f"{origin(started.address)}/v1", started.folder.path
    lines = [f"Tollhouse serves {base_url}", f"Its data is in {folder}"]
    if started.first is None:
        another = f"{program} keys create NAME --data-dir {shlex.quote(str(folder))}"
        return "\n".join([*lines, f"Another key: {another}"])
    api_key, model = started.first.api_key, started.example_model
    lines += [
        "",
        f"API key         {api_key}",
        f"Management key  {started.first.management_key}",
        "Keep them now: they are shown this once.",
        "",
    ]
    if model is None:
        lines.append("No model is configured yet, so there is nothing to ask.")
    else:
        lines += ["Try it:", "", f"  {curl_example(base_url, api_key, model)}"]
    return "\n".join(lines)


def curl_example(base_url: str, api_key: str, model: str) -> str:
    """Return one line for a shell that asks a model something."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    headers = (f"Authorization: Bearer {api_key}", "Content-Type: application/json")
    options = [word for header in headers for word in ("-H", header)]
    url = f"{base_url}/chat/completions"
    return shlex.join(["curl", url, *options, "-d", json.dumps(body)])


def _program() -> str:
    """Return how to call this program again: in a checkout it is not on the path."""
    called = sys.argv[0]
    if shutil.which(PROGRAM) is None and called.endswith(f"/{PROGRAM}"):
        return shlex.quote(called)
    return PROGRAM
