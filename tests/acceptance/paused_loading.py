"""`tollhouse serve` that loads its control plane once it is told to, and tells what is loaded.

    python -P tests/acceptance/paused_loading.py FOLDER serve --json ...

It goes on when the file `FOLDER/go` is there. `FOLDER/inference` has the names of the modules that
were loaded by then, `FOLDER/all` those of a server that is up. With `FOLDER/damaged`, the web
framework cannot be imported. Nothing else of the program is changed.
"""

import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tollhouse.cli.main import main


def tell_modules(file: Path) -> None:
    # Under another name first: who waits for the file finds all of it.
    new = file.with_suffix(".new")
    new.write_text("\n".join(sorted(sys.modules)))
    new.rename(file)


def before(step: Callable[[], Any], action: Callable[[], None]) -> Callable[[], Any]:
    def both() -> Any:
        action()
        return step()

    return both


class ServeImporter:
    """Changes `tollhouse.apps.serve` when the program imports it, and imports nothing itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "tollhouse.apps.serve":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_changed(module: Any) -> None:
            execute(module)
            steps = {"_import_control": self._pause, "_calm_the_collector": self._is_up}
            for step, action in steps.items():
                setattr(module, step, before(getattr(module, step), action))

        spec.loader.exec_module = execute_changed
        return spec

    def _pause(self) -> None:
        while not (self._folder / "go").exists():
            time.sleep(0.01)
        tell_modules(self._folder / "inference")
        if (self._folder / "damaged").exists():
            sys.modules["fastapi"] = None  # type: ignore[assignment]

    def _is_up(self) -> None:
        tell_modules(self._folder / "all")


if __name__ == "__main__":
    _, folder, *arguments = sys.argv
    sys.meta_path.insert(0, ServeImporter(Path(folder)))
    sys.argv = ["tollhouse", *arguments]
    sys.exit(main())
