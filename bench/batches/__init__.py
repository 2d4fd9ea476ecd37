"""What batches cost: their ingest, their run, their results, and the requests beside them.

submit, cancel, results (this process)  ──>  gateway (measured)  ──>  upstream (process)
live requests (process)                 ──>      │
bare loop (process, measured)           ─────────│──────────────────>
                                                 └─ ingest child (measured)
"""
