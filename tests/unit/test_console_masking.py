"""What a reader may see of a payload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.console.views.masking import is_secret, masked
from milepost.schemas.masking import MASK

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=15,
)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "userPassword",
        "API_KEY",
        "apiKey",
        "x-api-key",
        "access_token",
        "client_secret",
        "cardNumber",
    ],
)
def test_what_is_called_like_a_secret_is_one(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["key", "token_count", "tokens", "amount", "secretary", "", "pinned", "id"])
def test_what_is_called_otherwise_is_none(name: str) -> None:
    assert not is_secret(name)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


@given(JSON)
def test_who_may_not_read_sees_how_it_is_built_and_no_value(value: Any) -> None:
    shown = masked(value, readable=False)
    assert all(leaf is None or isinstance(leaf, bool) or leaf == MASK for leaf in leaves(shown))
    assert type(shown) is type(value) or shown == MASK
    if isinstance(value, dict):
        assert shown.keys() == value.keys()


@given(JSON, JSON)
def test_a_secret_is_shown_to_nobody(value: Any, secret: Any) -> None:
    shown = masked({"value": value, "password": secret}, readable=True)
    assert shown["password"] == (None if secret is None else MASK)


def test_nesting_without_end_ends() -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = [deep]
    assert "bottom" not in str(masked(deep, readable=True))
