"""What the agent can do: each tool is a function, its docstring what the model reads.

    toolset ──> shell ──> commands    programs with bounds ──> excerpts
            ├─> files                 reading, writing, editing
            ├─> http                  requests
            ├─> asking                questions to people
            └─> mcp ──> servers       of the workspace's `.mcp.json`
             consent     what is asked first, in manual runs
             titles      what a call does, in a line

A tool that fails says so to the model (`ToolFailed`); it never ends the run.
"""
