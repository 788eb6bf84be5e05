"""The ledger's service with drawn flows, families and approvals too, and the participant of their commands."""

from __future__ import annotations

from tests.support.apps.ledger import PREFIX, SAGAS
from tests.support.apps.ledger_approvals import APPROVALS
from tests.support.apps.ledger_family import FAMILY
from tests.support.apps.ledger_service import made
from tests.support.apps.nested_ledger import NESTED, participate

EVERY = [*SAGAS, *APPROVALS, *FAMILY, *(saga for _, saga in NESTED.values())]
service = made(EVERY)
participate(service.consumer(f"{PREFIX}-yard"))
