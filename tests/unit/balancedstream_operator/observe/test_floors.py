"""A query raises the minimum; one that fails is remembered for a while, and said."""

from __future__ import annotations

import math
import re
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import Request, Response, serve
from supervised import SETTINGS, Scene, conditions

from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.endpoints import Endpoint
from balancedstream_operator.observe.floors import EVERY_S, HOLD_S, MAX_FLOOR, FloorQuery, round_up
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.prometheus import WHOLE_ANSWERS, Prometheus, _read_number
from balancedstream_operator.process.threads import PassThreads
from balancedstream_operator.settings import Settings

QUERY = "max(expected)"


def fail() -> float:
    message = "no answer"
    raise MissingMeasurementsError(message)


@given(st.floats(0.0, MAX_FLOOR))
def test_an_answer_is_rounded_up(answer: float) -> None:
    assert answer - 1e-6 <= round_up(answer) < answer + 1


@pytest.mark.parametrize("answer", [math.nan, math.inf, -math.inf, -0.1, 10_001.0, 1e300])
def test_what_is_no_number_of_executors_is_refused_with_what_it_is(answer: float) -> None:
    with pytest.raises(
        MissingMeasurementsError, match=re.escape(f"answers {answer:g}, and not a number")
    ):
        round_up(answer)


@given(
    st.lists(st.tuples(st.floats(0.0, 700.0), st.none() | st.floats(allow_nan=True)), max_size=40)
)
def test_the_floor_is_the_last_good_answer_for_a_while_and_questions_are_rare(
    looks: list[tuple[float, float | None]],
) -> None:
    floor, now_s, asked = FloorQuery(), 1000.0, []
    last, known_s = 4, now_s + sum(pause_s for pause_s, _ in looks[:1])
    for pause_s, answer in looks:
        now_s += pause_s

        def ask(answer: float | None = answer, now_s: float = now_s) -> float:
            asked.append(now_s)
            return fail() if answer is None else answer

        before = len(asked)
        found = floor.look(QUERY, ask, 4, now_s)
        if len(asked) > before and answer is not None and 0.0 <= answer <= MAX_FLOOR:
            last, known_s = round_up(answer), now_s
        if found.known:
            assert found.executors == last
        else:
            assert found.executors == (last if now_s < known_s + HOLD_S else 0)
    assert all(later - sooner >= EVERY_S for sooner, later in pairwise(asked))


def test_a_new_query_forgets_what_the_old_one_gave() -> None:
    floor = FloorQuery()
    assert floor.look(QUERY, lambda: 9.0, 2, 0.0).executors == 9
    assert floor.look("other", fail, 2, 1.0).executors == 2
    assert floor.look("", fail, 2, 2.0).known is None


def test_a_query_raises_the_minimum_within_the_maximum_and_says_so() -> None:
    scene = Scene(executors={"min": 2, "max": 4, "minQuery": QUERY})
    scene.answered = 2.3
    scene.run_until_running()
    done = scene.run_pass()
    assert done.status["desiredExecutors"] == 3
    assert conditions(done)["FloorKnown"] == ("True", "Answered")
    (decision,) = [d for d in done.status["decisions"] if d["kind"] == "scale"]
    assert "at least 3 by executors.minQuery" in decision["reason"]
    assert {*scene.asked} == {QUERY}


def test_a_query_that_fails_is_held_and_then_the_minimum_alone_counts() -> None:
    scene = Scene(executors={"min": 2, "max": 4, "minQuery": QUERY})
    scene.answered = 4.0
    scene.run_until_running()
    assert scene.run_pass().status["desiredExecutors"] == 4
    scene.answered = math.nan
    scene.executors = dict.fromkeys("1234", 1)
    for _ in range(4):
        scene.finish_batches()
        done = scene.run_pass()
    assert conditions(done)["FloorKnown"] == ("False", "Held")
    assert "at least 4 by executors.minQuery" in done.status["reason"]
    scene.now_s += HOLD_S
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["FloorKnown"] == ("False", "NotAnswered")
    assert "minQuery" not in done.status["reason"]


def test_an_operator_that_has_just_started_keeps_what_there_is_until_it_knows() -> None:
    scene = Scene(executors={"min": 2, "max": 4, "minQuery": QUERY})
    scene.answered = 4.0
    scene.run_until_running()
    scene.run_pass()
    scene.answered, scene.passes = "no answer", scene.make_passes()
    scene.executors = dict.fromkeys("1234", 1)
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["FloorKnown"] == ("False", "Held")
    assert "at least 4 by executors.minQuery" in done.status["reason"]


def test_a_query_that_the_operator_may_not_ask_is_refused_by_name() -> None:
    scene = Scene(executors={"min": 2, "max": 4, "minQuery": QUERY})
    scene.passes._reconciler._settings = Settings("http://prometheus")
    done = scene.run_pass()
    assert conditions(done)["Accepted"] == ("False", "InvalidSpec")
    assert "spec.executors.minQuery: the operator asks no queries" in done.status["reason"]
    assert scene.asked == []


def test_passes_with_queries_wait_for_threads_among_themselves() -> None:
    threads = PassThreads(SETTINGS)
    plain: dict[str, Any] = {"spec": {"executors": {"min": 1}}}
    asking = {"spec": {"executors": {"minQuery": QUERY}}}
    assert threads.choose(plain) is not threads.choose(asking)
    threads.wait()


@pytest.mark.parametrize(
    ("result", "number"),
    [
        ([1.0, "3.5"], 3.5),
        ([{"metric": {}, "value": [1.0, "2"]}], 2.0),
        ([{"metric": {"a": "b"}, "value": [1.0, "+Inf"]}], math.inf),
    ],
)
def test_a_scalar_and_a_vector_of_one_series_are_one_number(result: Any, number: float) -> None:
    assert _read_number(result) == number


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ([], "gives nothing"),
        ([{"value": [1, "1"]}] * 2, "gives 2 series"),
        ([{"value": [1, "1"]}] * 3, "gives 3 series"),
        ([1.0, "text"], "gives no number"),
        ([{"values": [[1, "1"]]}], "gives no number"),
        ([{"histogram": [1, {}]}], "gives no number"),
        ([{"value": [1]}], "gives no number"),
        ([None], "gives no number"),
    ],
)
def test_anything_else_is_said(result: Any, said: str) -> None:
    with pytest.raises(MissingMeasurementsError, match=said):
        _read_number(result)


def ask_server(*result: Any, query: str = QUERY) -> tuple[float, list[dict[str, str]]]:
    """The number that a server's answer gives, and what it was asked."""
    asked = []

    def answer(request: Request) -> Response:
        asked.append(request.query)
        return Response({"status": "success", "data": {"resultType": "x", "result": [*result]}})

    with serve(answer) as url:
        own = Prometheus(Endpoint(url, of_the_operator=True), AnswerBudgets())
        return own.ask(query, 1000.0), asked


def test_the_server_is_asked_as_the_stream_says_and_to_give_up_in_time() -> None:
    number, (asked,) = ask_server({"metric": {}, "value": [1000.0, "7"]})
    assert number == 7.0
    assert asked == {"query": QUERY, "time": "1000.0", "timeout": "5s", **WHOLE_ANSWERS}


def test_an_answer_that_is_far_too_much_is_not_taken() -> None:
    one = {"metric": {"instance": "a" * 100}, "value": [1000.0, "7"]}
    with pytest.raises(MissingMeasurementsError, match="answers have more than 65536 bytes"):
        ask_server(*[one] * 1000)


def test_a_server_that_refuses_the_query_is_said_to() -> None:
    with (
        serve(lambda _: Response({"status": "error"}, status=422)) as url,
        pytest.raises(MissingMeasurementsError, match=r"status 422 .*, for executors\.minQuery"),
    ):
        Prometheus(Endpoint(url), AnswerBudgets()).ask(QUERY, 1000.0)


def test_a_server_that_has_lost_its_targets_lowers_nothing_in_the_rush_hour() -> None:
    # kedacore/keda#3065: an empty answer was taken for 0, and all went down to their minimum.
    floor = FloorQuery()

    def ask_empty() -> float:
        return ask_server()[0]

    assert floor.look(QUERY, lambda: 9.0, 9, 0.0).executors == 9
    found = floor.look(QUERY, ask_empty, 9, 60.0)
    assert (found.executors, found.reason) == (9, "Held")
    assert "gives nothing" in found.message


def test_no_number_becomes_a_huge_negative_one() -> None:
    # kedacore/keda#7475 and #3644: NaN and Inf became integers.
    for text in ("NaN", "+Inf", "-Inf"):
        found = FloorQuery().look(QUERY, partial(_ask_for, text), 4, 0.0)
        assert (found.executors, found.known) == (4, False)


def test_a_sum_over_clusters_of_which_one_cannot_be_reached_lowers_nothing() -> None:
    # thanos-io/thanos#622: the sum came without that cluster, and nobody saw that it was too low.
    def answer_in_part(request: Request) -> Response:
        if {
            "partial_response": "false",
            "deny_partial_response": "1",
        }.items() <= request.query.items():
            return Response({"status": "error", "errorType": "execution"}, status=422)
        result = [{"metric": {}, "value": [1000.0, "3"]}]
        data = {"resultType": "vector", "result": result}
        return Response({"status": "success", "data": data, "warnings": ["no store matched"]})

    floor = FloorQuery()
    assert floor.look(QUERY, lambda: 9.0, 9, 0.0).executors == 9
    with serve(answer_in_part) as url:
        own = Prometheus(Endpoint(url, of_the_operator=True), AnswerBudgets())
        found = floor.look(QUERY, lambda: own.ask(QUERY, 60.0), 9, 60.0)
    assert (found.executors, found.reason) == (9, "Held")


def test_a_query_arrives_as_it_was_written() -> None:
    # kedacore/keda#521 and prometheus/prometheus#4199: `+` arrived as a blank.
    query = """sum(up{job=~"a.+|b&c=50%",path="/#?é"}) + 1 or\n vector(2) % 3"""
    _, (asked,) = ask_server(1000.0, "7", query=query)
    assert asked["query"] == query


def test_a_server_that_is_back_is_believed_at_the_next_question() -> None:
    # kedacore/keda#3152: after one 503 the scaler stayed without a number.
    floor = FloorQuery()
    assert floor.look(QUERY, lambda: 5.0, 5, 0.0).executors == 5
    assert floor.look(QUERY, fail, 5, EVERY_S).known is False
    found = floor.look(QUERY, lambda: 7.0, 5, 2 * EVERY_S)
    assert (found.executors, found.known, found.reason) == (7, True, "Answered")


def test_half_an_executor_more_is_one_more_however_the_load_got_there() -> None:
    # kedacore/keda#3291: 38, 39 and 40 rows for two a pod gave 19 pods for good.
    floor, found = FloorQuery(), []
    for number, rows in enumerate((38, 39, 40, 39, 38)):
        answer = partial(_ask_for, str(rows / 2))
        found.append(floor.look(QUERY, answer, 1, number * EVERY_S).executors)
    assert found == [19, 20, 20, 20, 19]


def _ask_for(text: str) -> float:
    return ask_server(1000.0, text)[0]
