"""The entry point: which command is run, and how an error leaves the program.

    0    done
    1    the server refused, or cannot be reached; or a check found something
    2    a wrong option, file, setting or data folder: nothing was made, nothing was asked
    3    a batch that was watched is completed, but some of its requests failed
    4    a batch ended as failed, expired or cancelled
    130  Ctrl-C

Every error is one line on standard error (the settings: one line for each mistake), without a
stack trace. What is imported here is loaded by every command; the rest is imported by the command
that needs it. `serve` stays, so it goes without the library that reads the options of the others.
"""

import io
import sys

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.serving import ServeOptions, run_server
from tollhouse.kernel.errors import StartError

INTERRUPTED = 130


def main() -> int:
    """Run the command line and return its exit code."""
    prepare_streams()
    args = sys.argv[1:]
    try:
        options = ServeOptions.parse(args)
        if options is not None:
            return run_server(options)
        from tollhouse.cli.program import run

        run(args)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (StartError, CommandFailed) as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def prepare_streams() -> None:
    """Make sure that printing cannot end a command before its work is done."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's encoding lacks looks odd.
            stream.reconfigure(errors="backslashreplace")
