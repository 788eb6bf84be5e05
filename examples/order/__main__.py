"""`python -m milepost.examples.order`."""

import sys

from .demo import main

sys.exit(main())
