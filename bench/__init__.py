"""What a request costs the gateway in CPU time, beside nginx as a plain reverse proxy.

    load (process)  ──>  gateway or nginx (the measured process)  ──>  upstream (process)

`batches`, `egress` and `interns` measure what their names say. `python -m bench --help` lists the
options; `RESULTS.md` holds the figures of the last full run.
"""
