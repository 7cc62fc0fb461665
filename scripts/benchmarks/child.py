"""``python -m benchmarks.child module:function '[arguments]'``: call it, print its result as JSON.

It runs in peers' environments too: nothing but the standard library is imported here.
"""

import importlib
import json
import os
import sys


def main() -> None:
    """Call and print."""
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    result = function(*json.loads(sys.argv[2]))
    print("\n=> " + json.dumps(result), flush=True)
    os._exit(0)  # threads of what was measured do not keep us


if __name__ == "__main__":
    main()
