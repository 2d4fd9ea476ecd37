"""What a person can set: frozen sections, parsed once from one YAML file and the environment.

    YAML file ──▶ source.py ──┐
    environment ▶ environment.py ──▶ loader.load() ──▶ sections.Settings ──▶ description.masked()
    flags ────────────────────┘        │
                                       └──▶ problems.ConfigError (every problem, one line each)

`apps/` loads them and hands each part down its own section; nobody else reads the environment.
The catalogue adds known models and prices to what is written here.
"""
