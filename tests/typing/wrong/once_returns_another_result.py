"""What `do` returns is what `result` names, and what the caller gets."""

from base import Charge, Parcel, Place, service
from milepost import Found, Probe, Repeat


async def charge(key: str) -> Charge:
    return Charge(id=key)


async def parcel(key: str) -> Parcel:
    return Parcel(number=key)


async def find(key: str) -> Probe[Charge]:
    return Found(Charge(id=key))


async def find_parcel(key: str) -> Probe[Parcel]:
    return Found(Parcel(number=key))


async def good() -> str:
    done = await service.once(
        kind="charge", key="o-1", request=Place(id="o-1"), result=Charge, repeat=Repeat.ASK_FIRST, do=charge, probe=find
    )
    return done.id


async def nothing(key: str) -> None: ...


async def good_without_a_result() -> None:
    await service.once(
        kind="note", key="o-1", request=Place(id="o-1"), result=type(None), repeat=Repeat.SAFE, do=nothing
    )


async def other_field() -> str:
    done = await service.once(
        kind="charge", key="o-1", request=Place(id="o-1"), result=Charge, repeat=Repeat.SAFE, do=charge
    )
    print(done.number)  # expect: attr-defined
    return done.id


async def other_do() -> Charge:
    return await service.once(
        kind="charge",
        key="o-1",
        request=Place(id="o-1"),
        result=Charge,
        repeat=Repeat.SAFE,
        do=parcel,  # expect: arg-type
    )


async def other_probe() -> Charge:
    return await service.once(
        kind="charge",
        key="o-1",
        request=Place(id="o-1"),
        result=Charge,
        repeat=Repeat.ASK_FIRST,
        do=charge,
        probe=find_parcel,  # expect: arg-type
    )


async def without_repeat() -> Charge:
    return await service.once(kind="a", key="b", request=Place(id="c"), result=Charge, do=charge)  # expect: call-arg
