"""The demo's tour names an order for each thing that can be seen, and its Markdown becomes a page without surprises."""

from __future__ import annotations

from milepost.console.web.markdown import html_of
from milepost.examples.shop.tour import tour
from milepost.examples.shop.traffic import Kill
from milepost.examples.shop.verdict import Outcome, Verdict, compare


def told() -> str:
    ends = {1: ("COMPENSATED", "WAIT_TIMEOUT"), 3: ("COMPENSATED", "CARD_DECLINED")}
    outcomes = [Outcome(f"t-{n:03d}", *ends.get(n, ("SUCCEEDED", "")), "9.90") for n in range(20)]
    runs = {one.order_id: {"id": f"run-{one.order_id}"} for one in outcomes}
    verdict: Verdict = compare(outcomes, [])
    kills = [Kill("relay", 7, 3, "orders were being committed")]
    return tour(verdict, kills, outcomes, runs, relay=7, shop="http://127.0.0.1:1")


def test_each_thing_has_an_order_of_its_own() -> None:
    text = told()
    links = [line for line in text.splitlines() if line.startswith("- [order/")]
    assert len(links) == 8
    assert len(set(links)) == len({line.partition("(")[2].partition(")")[0] for line in links})
    assert "[order/t-001](/runs/run-t-001): undone because nobody reported" in text
    assert "[order/t-005](/runs/run-t-005): the bank charged and answered too late" in text
    assert "kill 7" in text and "{" not in text.replace('{"order_id"', "")


def test_a_page_of_markdown_runs_nothing() -> None:
    html = html_of("# a\n\n<script>alert(1)</script> [x](javascript:alert(1)) [y](/runs)\n")
    assert "<script" not in html and 'href="javascript' not in html
    assert '<a href="/runs">y</a>' in html
    assert "<h2>What to try</h2>" in html_of(told())
