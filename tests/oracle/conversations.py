"""`python -m tests.oracle.conversations --repo OLD`: do two checkouts' gateways do the same?

Random conversations are held with both, in front of one provider, and compared turn by turn: what
the provider was asked, what the client was told, and in the end what was booked. The exit status is
1 where something differs that nobody has decided (`http_decided.yaml`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tests.oracle import http_replies as replies
from tests.oracle import http_rows
from tests.oracle.http_comparison import Difference, Exchange, Made, differences_of
from tests.oracle.http_requests import PATHS, Conversation, Request
from tests.oracle.http_servers import SIDES, Lane, Pair, start_pair

_ROOT: Final = Path(__file__).parents[2]
_DECIDED: Final = Path(__file__).with_name("http_decided.yaml")
_LANES: Final = 12


@dataclass(frozen=True, slots=True)
class Found:
    """A difference, and where it was."""

    kind: str
    """Differences of one kind have the same formats and the same path."""
    conversation: int | None
    turn: int | None
    old: str
    new: str


@dataclass(slots=True)
class Result:
    """What a comparison found."""

    conversations: int
    seed: int
    requests: int = 0
    seconds: float = 0
    found: list[Found] = field(default_factory=list[Found])

    @property
    def equal(self) -> int:
        """How many conversations were the same on both sides."""
        differ = {each.conversation for each in self.found} - {None}
        return self.conversations - len(differ)


class Comparison:
    """Holds the conversations, and keeps what differs."""

    def __init__(
        self, pair: Pair, result: Result, reasons: Mapping[str, str], advance: Callable[[], None]
    ) -> None:
        self._pair, self._result, self._advance = pair, result, advance
        self._reasons = reasons
        self._since = int(time.time())  # noqa: TID251 - what servers call now
        self._kinds: dict[str, str] = {}
        """What was asked and answered, by the titles of the requests."""
        self._parted = set[int]()
        """Conversations that ended when they differed, so that their rows differ as well."""

    async def run(self, numbers: range) -> None:
        """Hold the conversations, those of each lane one after the other; compare the rows then."""
        lanes = range(len(self._pair.lanes["old"]))
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                mine = [number for number in numbers if number % len(lanes) == lane]
                group.create_task(self._hold_all(lane, mine))
        for gateway in self._pair.gateways.values():
            await gateway.settle()
        old, new = (self._pair.gateways[side].server for side in SIDES)
        for title, found in http_rows.differences_booked(old, new):
            if title not in self._kinds:
                self._keep(found, "all", None, None)
                continue
            number, turn = map(int, title.split("."))
            if number not in self._parted:
                self._keep(found, self._kinds[title], number, turn)

    async def _hold_all(self, lane: int, numbers: list[int]) -> None:
        for number in numbers:
            await self._hold(lane, number)
            self._advance()

    async def _hold(self, lane: int, number: int) -> None:
        lanes = {side: self._pair.lanes[side][lane] for side in SIDES}
        talks = {side: Conversation(self._result.seed, number, lanes[side]) for side in SIDES}
        made = {side: Made(self._since) for side in SIDES}
        requests: dict[str, Request | None] = {side: talks[side].first() for side in SIDES}
        models = set[str]()
        while None not in requests.values():
            turns = await asyncio.gather(
                *(self._ask(lanes[side], talks[side], requests[side]) for side in SIDES)
            )
            asked, said = requests["old"], dict(zip(SIDES, turns, strict=True))
            assert asked is not None
            models |= _models_of(asked)
            for side in SIDES:
                made[side].learn(asked.turn, said[side].reply)
            kind = _kind(talks["old"].form, asked, said["old"])
            self._kinds[f"{number}.{asked.turn}"] = kind
            found = differences_of(said["old"], said["new"], (made["old"], made["new"]))
            undecided = [each for each in found if not self._keep(each, kind, number, asked.turn)]
            if undecided:
                self._parted.add(number)
                break
            for side in SIDES:
                last = requests[side]
                assert last is not None
                requests[side] = talks[side].next(last, said[side].reply)
        await asyncio.gather(*(self._heal(lanes[side], number, models) for side in SIDES))

    async def _ask(self, lane: Lane, talk: Conversation, request: Request | None) -> Exchange:
        assert request is not None
        lane.answer = lambda received, number: replies.answer(
            talk.draw("reply", request.turn, number), received
        )
        lane.asked = []
        self._result.requests += 1
        gateway = self._pair.gateways[lane.side]
        reply = await gateway.ask(request.path, request.body, request.headers)
        self._pair.check()
        return Exchange(lane.asked, reply)

    async def _heal(self, lane: Lane, number: int, models: set[str]) -> None:
        """Have each endpoint of models with several answer, so that none cools down any more."""
        lane.answer = lambda received, _: replies.plain(received)
        for model in sorted(models):
            providers = lane.endpoints(model)
            for provider in providers if len(providers) > 1 else ():
                body = {"model": model, "prompt": "hello", "provider": {"only": [provider]}}
                headers = {
                    "content-type": "application/json",
                    "x-title": f"after {number}: {model} {provider}",
                }
                await self._pair.gateways[lane.side].ask(
                    PATHS["completions"], json.dumps(body).encode(), headers
                )

    def _keep(self, found: Difference, kind: str, number: int | None, turn: int | None) -> bool:
        """Keep a difference, and return whether it is decided."""
        kept = Found(f"{kind}: {found.path}", number, turn, found.old, found.new)
        self._result.found.append(kept)
        return _reason(kept.kind, self._reasons) is not None


def _kind(form: str, request: Request, turn: Exchange) -> str:
    dialect = replies.dialect_of(turn.asked[0]) if turn.asked else "nobody"
    streams = request.fields().get("stream") is True
    return f"{form} from {dialect}, {'streamed' if streams else 'whole'}"


def _models_of(request: Request) -> set[str]:
    fields = request.fields()
    more = fields.get("models")
    listed = [fields.get("model"), *(more if isinstance(more, list) else ())]
    return {each for each in listed if isinstance(each, str)}


# The program.


def compare(
    repo: Path,
    conversations: int,
    reasons: Mapping[str, str],
    *,
    seed: int = 0,
    only: int | None = None,
    lanes: int = _LANES,
) -> Result:
    """Hold conversations with the gateways of another checkout and of this one.

    Args:
        repo: The other checkout, with its environment.
        conversations: How many.
        reasons: Those for differences that are decided: a conversation goes on after them.
        seed: What they are drawn from.
        only: The number of the only one that is held.
        lanes: How many are held at the same time.
    """
    result = Result(conversations, seed)
    numbers = range(conversations) if only is None else range(only, only + 1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as folder, _progress() as progress:
        advance = partial(progress.advance, progress.add_task("", total=len(numbers)))

        async def run() -> None:
            async with start_pair(Path(folder), {"old": repo, "new": _ROOT}, lanes) as pair:
                await Comparison(pair, result, reasons, advance).run(numbers)

        asyncio.run(run())
    result.seconds = round(time.perf_counter() - began, 1)
    return result


def _progress() -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def decided(path: Path = _DECIDED) -> dict[str, str]:
    """Return the reasons for differences that are decided, by patterns of their kinds."""
    listed: list[dict[str, str]] = yaml.safe_load(path.read_bytes()) or []
    return {each["kind"]: each["reason"] for each in listed}


def _reason(kind: str, reasons: Mapping[str, str]) -> str | None:
    return next((why for pattern, why in reasons.items() if fnmatchcase(kind, pattern)), None)


def report(result: Result, reasons: Mapping[str, str]) -> dict[str, Any]:
    """Return what is printed: the differences by kind, each with its number and an example."""
    kinds: dict[str, list[Found]] = {}
    for each in result.found:
        kinds.setdefault(each.kind, []).append(each)
    shown: dict[str, list[dict[str, Any]]] = {"undecided": [], "decided": []}
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        reason = _reason(kind, reasons)
        example = asdict(min(found, key=lambda each: len(each.old) + len(each.new)))
        row = {**example, "count": len(found)} | ({"reason": reason} if reason else {})
        shown["decided" if reason else "undecided"].append(row)
    facts = {name: getattr(result, name) for name in ("conversations", "equal", "requests")}
    return {**facts, "seed": result.seed, "seconds": result.seconds, **shown}


def _print(shown: dict[str, Any]) -> None:
    equal, held = f"{shown['equal']:,}", f"{shown['conversations']:,}"
    costs = f"{shown['requests']:,} requests, {shown['seconds']:,} s, seed {shown['seed']}"
    lines = [f"{equal} of {held} conversations are equal: {costs}"]
    for name in ("undecided", "decided"):
        lines += [f"\nDifferences, {name}:"] if shown[name] else []
        for row in shown[name]:
            place = f"conversation {row['conversation']}, turn {row['turn']}"
            lines += [f"{row['count']:6,}  {row['kind']}"]
            lines += [
                f"        {place}",
                f"          old {row['old']}",
                f"          new {row['new']}",
            ]
            lines += [f"        {row['reason']}"] if "reason" in row else []
    sys.stdout.write("\n".join(lines) + "\n")


def _folder(given: str) -> Path:
    return Path(given).resolve()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracle.conversations", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--repo", type=_folder, required=True, help="the other checkout")
    parser.add_argument("-n", type=int, default=10_000, help="how many conversations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this conversation alone")
    parser.add_argument("--lanes", type=int, default=_LANES, help="how many at the same time")
    parser.add_argument("--decided", type=Path, default=_DECIDED, help="a list of patterns")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    reasons = decided(given.decided)
    result = compare(
        given.repo, given.n, reasons, seed=given.seed, only=given.only, lanes=given.lanes
    )
    shown = report(result, reasons)
    if given.json:
        sys.stdout.write(json.dumps(shown, indent=2, ensure_ascii=False) + "\n")
    else:
        _print(shown)
    return 1 if shown["undecided"] else 0


if __name__ == "__main__":
    sys.exit(main())
