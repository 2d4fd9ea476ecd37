"""What a request costs the gateway in CPU time, beside nginx as a plain reverse proxy; and batches.

    load (process)  ──>  gateway or nginx (the measured process)  ──>  upstream (process)

`python -m bench --help` lists the options; `RESULTS.md` holds the figures of the last full run.
"""
