"""`python -m tollhouse` is `tollhouse`."""

from __future__ import annotations

import sys

from tollhouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
