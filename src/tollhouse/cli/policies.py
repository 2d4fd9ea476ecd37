"""`--policy FILE`: a policy from a file, for whatever has one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
import yaml

from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from tollhouse.cli.client import Server

PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="YAML or JSON that says what requests may reach and hold, and which guardrails judge "
        "them, in place of the policy before; an empty file takes it away. docs/guide/policies.md "
        "lists the fields.",
    ),
]


def read_policy(path: Path) -> dict[str, Any]:
    """Return a policy file's fields; the server says what is wrong with them.

    Raises:
        StartError: It cannot be read, or is no mapping.
    """
    try:
        found: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror})"
        raise StartError(message) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}"
        raise StartError(message) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        message = f"{path} must hold a mapping, such as `blocked_models: [acme/*]`"
        raise StartError(message)
    return cast("dict[str, Any]", found)


async def with_policy(
    server: Server, path: str, shown: dict[str, Any], file: Path | None, **query: object
) -> dict[str, Any]:
    """Return what is shown of something, with its policy, which a file may set first.

    Args:
        server: Where it is.
        path: Of the thing, without a query.
        shown: What is shown of it besides.
        file: The policy to set; None to leave it.
        query: Further parameters.
    """
    if file is not None:
        body = read_policy(file)
        found = await server.send("PUT", f"{path}/policy", body, query=query)
    else:
        found = await server.get(f"{path}/policy", **query)
    return {**shown, "policy": found["data"]}
