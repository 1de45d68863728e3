"""`python -m burst.cli`: the same as `burst`."""

import sys

from burst.cli import main

sys.exit(main())
