"""A process that charges: `python -m ... ROOT HOLDER`, with a record of a charge in each line.

The first one is of a request that goes to a provider and has no charge. It starts a program, says
that program's id once everything is in its journal, and then does nothing.
"""

import subprocess
import sys
from pathlib import Path

from tests.support.seams.accounting import Journal, record_of


def main(root: str, holder: str) -> None:
    cut_off, *charges = sys.stdin.buffer.read().splitlines()
    journal = Journal(Path(root), holder)
    journal.open()
    journal.under_way.begin(record_of(cut_off))
    for each in charges:
        journal.append(each)
    with subprocess.Popen(["/bin/sleep", "600"], close_fds=False, stdout=sys.stderr) as program:
        sys.stdout.write(f"{program.pid}\n")
        sys.stdout.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
