"""`python -m milepost.examples.report`."""

import sys

from .cli import main

sys.exit(main())
