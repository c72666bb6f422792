"""`python -m gabion` is the same as the `gabion` command."""

import sys

from gabion.cli import main

sys.exit(main())
