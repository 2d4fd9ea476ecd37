"""`python -P -m tollhouse.sandbox.daemon`."""

from __future__ import annotations

import sys

from tollhouse.sandbox.daemon.main import main

sys.exit(main())
