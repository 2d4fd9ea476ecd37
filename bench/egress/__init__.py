"""What the egress proxy costs: requests, new hosts, bodies, tunnels; beside mitmproxy.

load (process)  ──>  proxy (measured)  ──>  upstream (process, measured)
                       │  asks
                     server (measured)
"""
