"""Stops a server at a named place in it; `tollhouse.kernel.failpoints` says how it takes part."""

from collections.abc import Mapping
from pathlib import Path


class Failpoints:
    """The places at which servers that are started with `env` stop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reached = folder / "reached"
        folder.mkdir(exist_ok=True)

    @property
    def env(self) -> Mapping[str, str]:
        return {"TOLLHOUSE_TEST_FAILPOINTS": str(self._folder)}

    def stop_at(self, name: str, passes: int = 1) -> None:
        """Have whoever passes there for the n-th time from now on stop."""
        self._reached.unlink(missing_ok=True)
        new = self._folder / f"{name}.new"
        new.write_text(str(passes))
        new.rename(self._folder / name)

    def reached(self) -> bool:
        """Tell whether somebody has stopped."""
        return self._reached.exists()

    def go_on(self) -> None:
        """Let who has stopped go on."""
        self._reached.unlink()
