"""What interns cost: until one runs, until one is suspended, and while it does nothing.

client (this process)  ──HTTP──>  server (measured)  ──>  egress proxy (measured)
                                    └──>  bubblewrap ──> daemon (measured), one pair for each intern
daemon alone, bubblewrap alone (processes, measured): the yardsticks
"""
