"""`python -m tests.fuzz TARGET --seconds N`: look for an input on which a target fails.

It begins with the inputs that are kept, and what earlier runs found in `.cache/fuzz`. An input that
fails is written there, too; put it into the corpus with the change that makes it pass.
"""

import argparse
import sys
from pathlib import Path

import atheris

INSTRUMENTED = [
    "h11",
    "tollhouse.api.asgi_call",
    "tollhouse.api.connection",
    "tollhouse.api.exchange",
    "tollhouse.api.known_head",
    "tollhouse.kernel.hosts",
    "tollhouse.vault",
]
with atheris.instrument_imports(include=INSTRUMENTED):  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - it has no types
    from tests.fuzz.targets import CORPUS, TARGETS

LARGEST = 2048
SECONDS_FOR_ONE = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--cache", type=Path, default=Path(".cache") / "fuzz")
    chosen = parser.parse_args()
    found = chosen.cache / chosen.target
    failed = chosen.cache / f"{chosen.target}-failed"
    for folder in (found, failed):
        folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={chosen.seconds}",
        f"-max_len={LARGEST}",
        f"-timeout={SECONDS_FOR_ONE}",
        f"-artifact_prefix={failed}/",
        "-print_final_stats=1",
    ]
    corpus = [str(found), str(CORPUS / chosen.target)]
    atheris.Setup([sys.argv[0], *options, *corpus], TARGETS[chosen.target])
    atheris.Fuzz()


main()
