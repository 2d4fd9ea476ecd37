"""`python -I -m tollhouse.interns.agent`."""

from __future__ import annotations

import sys

from tollhouse.interns.agent.main import main

sys.exit(main())
