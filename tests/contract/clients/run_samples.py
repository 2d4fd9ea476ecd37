"""Runs examples from the documentation; prints what each of them printed, by operation and label.

Environment: SAMPLES, a JSON list of [operation, label, source].
"""

import io
import json
import os
import sys
from contextlib import redirect_stdout

printed = []
for operation, label, source in json.loads(os.environ["SAMPLES"]):
    output = io.StringIO()
    with redirect_stdout(output):
        exec(compile(source, f"{operation}, {label}", "exec"), {})  # noqa: S102 - it is what is tested
    printed.append([operation, label, output.getvalue()])
sys.stdout.write(json.dumps(printed))
