"""Running Python in a process of its own, for what cannot be undone or may crash."""

import os
import subprocess
import sys
import textwrap


def run_child(code, check=True, timeout=240, **environment):
    """Runs the code; its stdout, stderr and return code.  check: it must end with 0."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
