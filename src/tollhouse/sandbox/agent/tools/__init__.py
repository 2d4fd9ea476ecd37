"""What the agent can do: each tool is a function, its docstring what the model reads.

    toolset ──> shell                programs with bounds ──> no_network.py, a program
       │    ├─> files                reading, writing, editing
       │    └─> remote               HTTP requests; MCP servers of the workspace's `.mcp.json`
       └ ask_user, titles of calls
    context     permissions in manual runs, excerpts of what is long

A tool that fails says so to the model (`ToolFailed`); it never ends the run.
"""
