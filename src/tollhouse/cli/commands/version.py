"""`tollhouse version`."""

import json

from tollhouse import __version__
from tollhouse.cli.options import Json
from tollhouse.cli.output import write


def version(as_json: Json = False) -> None:
    """Print the version of this program."""
    write(json.dumps({"version": __version__}) if as_json else f"tollhouse {__version__}")
