"""The one file for each slice from which tests import its names.

    from tests.support.seams.accounting import Journal

A file lists the names by the modules that have them, and a module is imported when one of its names
is: a test of pricing needs no database. `new=old` gives a name that two modules have another one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a seam file: names, and modules, below a package."""
    homes = {
        shown: (f"{package}.{module}".rstrip("."), name or shown)
        for module, listed in modules.items()
        for shown, _, name in (each.partition("=") for each in listed.split())
    }

    def find(shown: str) -> Any:
        if shown not in homes:
            message = f"the seam of {package} has no {shown}: add it where its module is listed"
            raise AttributeError(message)
        home, name = homes[shown]
        module = import_module(home)
        return getattr(module, name) if hasattr(module, name) else import_module(f"{home}.{name}")

    return find
