"""Guardrails: services of the operator that judge a request before any provider gets it.

    policies ── names ──▶ gate ──▶ http ── question ──▶ the operator's service
                           │◀───────────── verdict ────────┘
                           └─▶ the request goes on, or Forbidden, or Unavailable

    base       the port: a question in, a verdict out
    verdicts   what is asked, how an answer is read, what several verdicts mean together; pure
    http       one configured service
    gate       asks all that a caller's policies name
    registry   from settings to guardrails

The patterns of policies need nobody to judge them; they are `inference.access`'s, and go first.
"""
