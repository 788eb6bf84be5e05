"""What is kept of an exception quotes neither what pydantic read nor what a statement was given."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from milepost.consumers.classify import classify, quotes
from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy.exc import IntegrityError

ANN = "ann@example.org"


class Answer(BaseModel):
    age: int
    more: dict[str, int] = {}


class Strict(Answer, extra="forbid"): ...


def misfit(kind: Any, value: object) -> ValidationError:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(kind).validate_python(value)
    return raised.value


def violated() -> asyncpg.UniqueViolationError:
    error = asyncpg.UniqueViolationError('duplicate key value violates unique constraint "customer_pkey"')
    error.detail = f"Key (email)=({ANN}) already exists."
    assert ANN in str(error)
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (misfit(Answer, {"age": ANN}), "ValidationError of Answer: age: int_parsing"),
        (misfit(Answer, {"age": 1, "more": {ANN: "x"}}), "ValidationError of Answer: more: int_parsing"),
        (misfit(Strict, {"age": 1, ANN: 1}), "ValidationError of Strict: it: extra_forbidden"),
        (misfit(dict[str, int], {ANN: "x"}), "ValidationError of dict[str,int]: it: int_parsing"),
    ],
)
def test_of_pydantic_only_where_and_how(error: ValidationError, said: str) -> None:
    assert ANN in str(error)
    found = classify(error, {})
    assert (found.verdict, found.code) == ("unknown", "VALIDATIONERROR")
    assert found.message.startswith(said)
    assert ANN not in found.message
    assert quotes(error)


def test_of_a_database_neither_detail_nor_parameters() -> None:
    plain = violated()
    wrapped = IntegrityError("INSERT INTO customer VALUES ($1)", (ANN,), plain)
    assert ANN in str(wrapped)
    for error, name in ((plain, "UniqueViolationError"), (wrapped, "IntegrityError")):
        found = classify(error, {})
        assert found.message.startswith(
            f'{name}: duplicate key value violates unique constraint "customer_pkey"'
        )
        assert ANN not in found.message
        assert quotes(error)


def test_what_was_raised_because_of_one_keeps_its_own_words_and_no_traceback() -> None:
    with pytest.raises(RuntimeError) as raised:
        try:
            Answer.model_validate({"age": ANN})
        except ValidationError as error:
            raise RuntimeError("the bank answers nonsense") from error
    assert quotes(raised.value)
    assert classify(raised.value, {}).message.startswith("RuntimeError: the bank answers nonsense")
    assert not quotes(RuntimeError("own words"))
