"""When the estimates of cost-aware shuffles are reported as off."""

from __future__ import annotations

from itertools import product

import pytest

from balancedstream_operator.api.resource import MAX_MESSAGE
from balancedstream_operator.observe.measurement import ShuffleSample
from balancedstream_operator.report.costs import DISTRUSTED_BATCHES, judge_costs


def untrusted(
    batches: int, error: float = 0.6, equal_error: float = 0.5, *, name: str = "label-by-kind"
) -> ShuffleSample:
    return ShuffleSample(name, False, batches, error, equal_error)


TRUSTED = ShuffleSample("parse-by-size", True, 0, 0.1, 0.5)
JUST_STARTED = ShuffleSample("label-by-kind", False, 0, None, None)
ALIKE = untrusted(50, 0.05, 0.05)


@pytest.mark.parametrize(
    ("shuffles", "holds", "reason"),
    [
        pytest.param([], None, "NoShuffle", id="no shuffle"),
        pytest.param([JUST_STARTED], None, "Learning", id="nothing is learned at the start"),
        pytest.param([untrusted(9)], None, "Learning", id="nine batches may be chance"),
        pytest.param([untrusted(10)], False, "EstimatesOff", id="ten are not"),
        pytest.param([untrusted(10, equal_error=0.2)], None, "CostsAlike", id="little to gain"),
        pytest.param([TRUSTED], True, "EstimatesHold", id="trusted"),
        pytest.param([TRUSTED, JUST_STARTED], None, "Learning", id="not all are trusted yet"),
        pytest.param([TRUSTED, ALIKE], True, "EstimatesHold", id="the other needs no estimates"),
        pytest.param([TRUSTED, untrusted(10)], False, "EstimatesOff", id="one of two is off"),
        pytest.param([JUST_STARTED, untrusted(10)], False, "EstimatesOff", id="others learn"),
    ],
)
def test_estimates_are_off_after_ten_batches_if_costs_differ(
    shuffles: list[ShuffleSample], holds: bool | None, reason: str
) -> None:
    trust = judge_costs(shuffles, distrusted=False)
    assert (trust.holds, trust.reason) == (holds, reason)


def test_the_message_on_estimates_that_are_off_says_what_it_means_and_what_to_do() -> None:
    shuffles = [untrusted(12, 0.4, 0.3), untrusted(14, 0.62, 0.58, name="parse-by-size")]
    message = judge_costs(shuffles, distrusted=False).message
    for said in (
        "shuffle parse-by-size (and 1 more)",
        "off by 62 %",
        "equal costs would be off by 58 %",
        "14 batches",
        "round robin meanwhile",
        "none is lost, duplicated or changed",
        "a cost key that predicts costs better",
        "docs/shuffle.md",
    ):
        assert said in message
    longest = judge_costs([untrusted(10**9, name="n" * 100)] * 20, distrusted=False).message
    assert len(longest) <= MAX_MESSAGE


def test_an_error_around_the_threshold_is_reported_once() -> None:
    swinging = [0.25, 0.15, 0.21, 0.12]
    said, distrusted = [], False
    for batches, equal_error in enumerate(swinging, start=DISTRUSTED_BATCHES):
        trust = judge_costs([untrusted(batches, equal_error=equal_error)], distrusted=distrusted)
        distrusted = trust.holds is False
        said.append(trust.holds)
    assert said == [False] * 4
    assert judge_costs([untrusted(20, equal_error=0.1)], distrusted=True).holds is None
    assert judge_costs([TRUSTED], distrusted=True).holds is True


def test_trust_has_a_reason_whatever_was_measured() -> None:
    errors = (None, 0.0, 0.2, 1.5)
    for trusted, batches, error, equal_error, before in product(
        (False, True), (0, 9, 10), errors, errors, (False, True)
    ):
        sample = ShuffleSample("label-by-kind", trusted, batches, error, equal_error)
        trust = judge_costs([sample], distrusted=before)
        assert "label-by-kind" in trust.message
        assert trust.holds is True or not trusted
        assert trust.holds is not True or trusted
