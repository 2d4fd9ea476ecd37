"""What a person can set: frozen sections, parsed once from one YAML file and the environment.

    YAML file ──▶ source.py ──┐
    environment ▶ environment.py ──▶ loader.load() ──▶ sections.Settings ──▶ show.masked()
    flags ────────────────────┘        │
                                       └──▶ errors.ConfigError (every problem, one line each)

`apps/` loads them and hands each part down its own section; nobody else reads the environment.
Which models exist and what they cost beyond what was written here is the catalogue's affair.
"""
