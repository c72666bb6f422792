"""The fresh process of one run: ``child.py MODULE:FUNCTION ARGS-AS-JSON`` calls the function and prints its answer."""

from __future__ import annotations

import importlib
import json
import sys


def main() -> None:
    module, _, function = sys.argv[1].partition(":")
    print(json.dumps(getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
