"""The agent of an intern: a model, and what it may do in the sandbox. A child of the daemon's.

    main ──> protocol    the daemon's messages as values
      └────> runner      one run at a time ──> run   pydantic-ai's loop
                              usage      what a run has used, and its limits
                              tools      shell, files, http, mcp, questions, permissions

It is started at the first run and ended when idle, since the agent library alone costs 80 MB. It
keeps nothing: what was said comes with each run, and goes back as it grows. A run that waits for
an answer has ended here; the answer is another `run` that goes on with it.

Each line is an object with a `type`. First comes one with the fields of `protocol.AgentSetup`. From
then on the daemon says

    {"type": "run", "approval_mode": "manual", "messages": ["...", ...],
     "inputs": [{"id": 1, "text": "..."}, ...], "answers": [{"call": "...", ...}, ...],
     "verdicts": {"shell": "allow"}, "spent": {...}}
    {"type": "steer", "input": {"id": 2, "text": "..."}, "until": 81234.5}
    {"type": "cancel"}

`messages` are pydantic-ai's, each one as text; `inputs` what people said that is in none of them
so far; `spent` what the run's earlier part told; after `until`, by the machine's monotonic clock, a
steer is not taken. An answer is `{"call", "permission": true,
"digest": "..."}`, or `{"call", "content": {...}}` with null for one that was declined. A permission
counts for what has this digest, which the agent told with the question; anything else is asked
about again. The agent says

    {"type": "text", "text": "..."}, {"type": "reasoning", "text": "..."}
    {"type": "tool", "call": "...", "tool": "shell", "title": "..."}
    {"type": "steered", "input": 2, "taken": true}
    {"type": "step", "keep": 3, "messages": ["...", ...], "entered": [1], "spent": {...},
     "ended": [{"call": "...", "outcome": "done"}, ...]}
    {"type": "paused", "questions": [{"call": "...", "permission": {...}}, ...], ...}
    {"type": "ended", "outcome": "completed", "error": null, ...}

A step says how the conversation has changed: of the messages that were there the first `keep`
stay, and `messages` follow; `entered` are inputs that are in there now. `paused` and `ended` have
a step's fields too, and are a run's last line.
"""
