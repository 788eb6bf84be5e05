"""`to_event` takes the request and returns an event or None; the middleware is given by add_middleware."""

from base import Charge, Delivered, service
from fastapi import FastAPI
from milepost import Event, HmacSignature, IdempotencyMiddleware, StandardWebhooks, WebhookRequest
from starlette.routing import Route
from starlette.types import Scope


def event_id(request: WebhookRequest) -> str:
    return request.headers["webhook-id"]


def to_event(request: WebhookRequest) -> Event | None:
    return Delivered(number=request.json()["number"])


def to_charge(request: WebhookRequest) -> Charge:
    return Charge(id="c")


def tenant(scope: Scope) -> str:
    return ""


api = FastAPI()
verify = StandardWebhooks("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
carrier = service.webhook("carrier", verify=verify, event_id=event_id, to_event=to_event)
api.mount("/hooks/carrier", carrier)
api.routes.append(Route("/hooks", carrier))
api.add_middleware(IdempotencyMiddleware, service=service, tenant=tenant)
service.webhook("bank", verify=HmacSignature("s", header="x"), event_id=event_id, to_event=to_charge)  # expect: arg-type
service.webhook("shop", verify="s", event_id=event_id, to_event=to_event)  # expect: arg-type
api.add_middleware(IdempotencyMiddleware, service=service)  # expect: call-arg
