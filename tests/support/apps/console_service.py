"""The service whose runs the console's tests look at; CONSOLE_SERVICE is its name."""

from __future__ import annotations

import os

from milepost import Milepost, Settings

from tests.support.apps.console_sagas import order, payout

service = Milepost(os.environ["CONSOLE_SERVICE"], sagas=[order, payout], settings=Settings.from_env())
