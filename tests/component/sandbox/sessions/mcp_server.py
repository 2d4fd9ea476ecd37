"""An MCP server as a program, with a behaviour as its argument.

python mcp_server.py good | hangs | silent | dies | fails | leaves | counts
"""

import json
import sys
import time

kind = sys.argv[1]
calls = 0
if kind == "dies":
    sys.exit(3)
for line in sys.stdin:
    if kind == "hangs":
        time.sleep(1000)
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        reply["result"] = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        }
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        tool = {"name": "echo", "description": "Say it again.", "inputSchema": schema}
        if kind == "counts":
            tool["outputSchema"] = {"type": "object", "required": ["calls"]}
        reply["result"] = {"tools": [tool]}
    elif method == "tools/call":
        if kind == "silent":
            continue
        if kind == "leaves" and message["params"]["arguments"]["text"] == "Go":
            sys.exit(0)
        said = message["params"]["arguments"].get("text")
        calls += 1
        text = f"call {calls}" if kind == "counts" else f"{said} again"
        content = [{"type": "text", "text": text}]
        reply["result"] = {"content": content, "isError": kind == "fails"}
        if kind == "counts" and said != "Miss your schema":
            reply["result"]["structuredContent"] = {"calls": calls}
    else:
        reply["error"] = {"code": -32601, "message": "unknown"}
    sys.stdout.write(f"{json.dumps(reply)}\n")
    sys.stdout.flush()
