"""What a request costs the gateway in CPU time, beside nginx as a plain reverse proxy.

    load (process)  ──>  gateway or nginx (the measured process)  ──>  upstream (process)

`comparison` makes the table of aims, for one checkout or two; `stages` tells where the time of a
request goes; `endurance` measures memory for an hour. `RESULTS.md` holds the figures, and
`python -m bench --help` lists the options.
"""
