"""`python -P -m tollhouse.interns.daemon`."""

from __future__ import annotations

import sys

from tollhouse.interns.daemon.main import main

sys.exit(main())
