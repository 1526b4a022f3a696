"""A policy says what each knob is, and refuses what it cannot mean."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.periods import Floor, Period
from balancedstream.core.policy import (
    MAX_PERIODS,
    AdmissionPolicy,
    BalancePolicy,
    CostPolicy,
    Knob,
    MigrationPolicy,
    Policy,
    ScalingPolicy,
    SchedulePolicy,
    WindowPolicy,
    knobs,
    parse,
    to_mapping,
)
from balancedstream.core.removed import REMOVED, RemovedKnob, describe_removed
from balancedstream.errors import InvalidInputError

KNOBS = list(knobs())
SECTIONS = (
    BalancePolicy,
    ScalingPolicy,
    WindowPolicy,
    MigrationPolicy,
    AdmissionPolicy,
    SchedulePolicy,
    CostPolicy,
)
SCALARS = [knob for knob in KNOBS if not knob.is_list]
# Those that no other field's value can contradict.
FREE_KNOBS = [
    knob for knob in SCALARS if not knob.path.endswith(("min_executors", "max_executors"))
]


def parse_one(path: str, value: object) -> Policy:
    section, _, name = path.partition(".")
    return parse({section: {name: value}})


def read_one(policy: Policy, path: str) -> object:
    section, _, name = path.partition(".")
    return getattr(getattr(policy, section), name)


def values_of(knob: Knob) -> st.SearchStrategy[object]:
    if knob.max_length:
        letters = st.characters(categories=("L", "N", "S", "P"))
        return st.text(letters, max_size=knob.max_length)
    if knob.bounds is None:
        return st.sampled_from(knob.choices)
    low, high = knob.bounds
    if knob.kind is int:
        return st.integers(int(low), int(high))
    return st.floats(low, high)


def test_every_field_is_a_knob_with_unit_default_range_and_a_sentence() -> None:
    declared = {f"{section.name}.{entry.name}" for section in SECTIONS for entry in fields(section)}
    assert {knob.path for knob in KNOBS} == declared
    for knob in KNOBS:
        assert knob.sentence.endswith("."), knob.path
        assert "\n" not in knob.sentence
        assert (knob.bounds is None) == (
            bool(knob.choices) or bool(knob.max_length) or knob.is_list
        )
        assert (knob.bounds is None) != bool(knob.unit), knob.path
        knob.check(knob.default)


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.path)
def test_the_name_of_a_knob_in_seconds_says_so(knob: Knob) -> None:
    assert (knob.unit == "seconds") == knob.path.endswith("_s")


@pytest.mark.parametrize("nothing", [None, {}, {"balance": None}, {"balance": {}}])
def test_what_is_left_out_has_its_default(nothing: object) -> None:
    assert parse(nothing) == Policy()


def test_thresholds_can_be_zero() -> None:
    assert BalancePolicy(act_above=0).act_above == 0


def test_yaml_reads_a_bare_off_as_false_and_it_still_means_off() -> None:
    assert parse({"balance": {"mode": False}}).balance.mode == "off"


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Policy().balance.act_above = 2.0  # type: ignore[misc]


@given(st.data())
def test_every_knob_is_taken_alone_anywhere_in_its_range(data: st.DataObject) -> None:
    for knob in SCALARS:
        value = data.draw(values_of(knob), label=knob.path)
        assert read_one(parse_one(knob.path, value), knob.path) == value


@pytest.mark.parametrize("knob", REMOVED, ids=lambda knob: knob.path)
def test_a_removed_knob_is_taken_whatever_its_value_and_named(knob: RemovedKnob) -> None:
    assert knob.path not in {known.path for known in KNOBS}
    for value in (*knob.defaults, "nonsense", -1, None):
        policy = parse_one(knob.path, value)
        assert (policy, policy.removed) == (Policy(), (knob,))
    said = describe_removed([knob])
    assert f"{knob.path} ({knob.why})" in said
    assert "\n" not in said


def test_beside_removed_knobs_the_others_hold() -> None:
    policy = parse({"scaling": {"latency_objective_s": 9.0, "high_utilization": 0.95}})
    assert policy.scaling.latency_objective_s == 9.0
    assert [knob.path for knob in policy.removed] == ["scaling.high_utilization"]


@given(st.data())
@settings(max_examples=60)
def test_a_policy_survives_being_written_and_read(data: st.DataObject) -> None:
    mapping: dict[str, dict[str, object]] = {}
    for knob in data.draw(st.lists(st.sampled_from(FREE_KNOBS), unique_by=lambda k: k.path)):
        section, _, name = knob.path.partition(".")
        mapping.setdefault(section, {})[name] = data.draw(values_of(knob))
    policy = parse(mapping)
    assert parse(to_mapping(policy)) == policy
    for section, given_fields in mapping.items():
        for name, value in given_fields.items():
            assert read_one(policy, f"{section}.{name}") == value


@pytest.mark.parametrize("knob", SCALARS, ids=lambda knob: knob.path)
@pytest.mark.parametrize("wrong", [None, True, [1], {}, "", "nonsense", math.nan, b"1"], ids=repr)
def test_a_wrong_type_is_refused_by_name_with_what_is_allowed(knob: Knob, wrong: object) -> None:
    if knob.max_length and isinstance(wrong, str):
        assert read_one(parse_one(knob.path, wrong), knob.path) == wrong
        return
    with pytest.raises(InvalidInputError) as refusal:
        parse_one(knob.path, wrong)
    assert str(refusal.value).startswith(f"{knob.path}: must be {knob.allowed}, not ")


@pytest.mark.parametrize("knob", [k for k in KNOBS if k.bounds], ids=lambda knob: knob.path)
def test_a_value_beyond_either_end_is_refused_by_name(knob: Knob) -> None:
    assert knob.bounds is not None
    low, high = knob.bounds
    for wrong in (low - 1, high + 1, math.inf, -math.inf):
        with pytest.raises(InvalidInputError, match=f"^{knob.path}: must be "):
            parse_one(knob.path, wrong)


@pytest.mark.parametrize("knob", [k for k in KNOBS if k.kind is int], ids=lambda knob: knob.path)
def test_a_count_is_no_fraction(knob: Knob) -> None:
    with pytest.raises(InvalidInputError, match=f"^{knob.path}: must be an integer"):
        parse_one(knob.path, 1.5)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            [],
            "^policy: must be a mapping of balance, scaling, window, migration, admission, sched",
        ),
        ({"balanse": {}}, "^policy.balanse: unknown field, allowed are balance, scaling, "),
        ({"balance": 3}, "^balance: must be a mapping of mode, act_above"),
        ({"balance": {"act_abov": 1}}, "^balance.act_abov: unknown field, allowed are mode, act"),
        ({"window": {7: 1}}, "^window.7: unknown field, allowed are batches$"),
    ],
)
def test_a_wrong_shape_or_name_is_refused_by_name(mapping: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse(mapping)


@pytest.mark.parametrize(
    ("scaling", "field"),
    [
        ({"min_executors": 5, "max_executors": 2}, "scaling.min_executors"),
    ],
)
def test_fields_that_contradict_each_other_are_refused_by_name(
    scaling: dict[str, float], field: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"^{field}: must "):
        parse({"scaling": scaling})


def test_no_greatest_number_of_executors_contradicts_no_least() -> None:
    assert ScalingPolicy(min_executors=5).max_executors == 0


WORKDAY = {"cron": "0 8 * * 1-5", "duration_s": 36_000, "time_zone": "Europe/Berlin"}


def test_periods_are_read_from_mappings_and_written_as_such() -> None:
    given = {"excluded": [WORKDAY], "floors": [{**WORKDAY, "min_executors": 6}]}
    policy = parse({"schedule": given})
    assert policy.schedule == SchedulePolicy(
        (Period("0 8 * * 1-5", 36_000, "Europe/Berlin"),),
        (Floor("0 8 * * 1-5", 36_000, "Europe/Berlin", 6),),
    )
    assert to_mapping(policy)["schedule"] == given
    assert parse(to_mapping(policy)) == policy


@pytest.mark.parametrize(
    ("periods", "message"),
    [
        (None, "^schedule.excluded: must be a list of at most 8, each with cron, duration_s, time"),
        ("0 8 * * *", "^schedule.excluded: must be a list"),
        ({"cron": "0 8 * * *"}, "^schedule.excluded: must be a list"),
        ([WORKDAY] * (MAX_PERIODS + 1), "^schedule.excluded: must be a list of at most 8"),
        (
            ["0 8 * * *"],
            r"^schedule.excluded\[0\]: must be a mapping of cron, duration_s, time_zone",
        ),
        ([WORKDAY, {"cron": "0 8 * * *"}], r"^schedule.excluded\[1\].duration_s: missing$"),
        ([{"duration_s": 60}], r"^schedule.excluded\[0\].cron: missing$"),
        ([None], r"^schedule.excluded\[0\].cron: missing$"),
        (
            [{**WORKDAY, "min_executors": 2}],
            r"^schedule.excluded\[0\].min_executors: unknown field",
        ),
        ([{**WORKDAY, "cron": "0 8 * *"}], r"^schedule.excluded\[0\].cron: must be five fields"),
        ([{**WORKDAY, "cron": 8}], r"^schedule.excluded\[0\].cron: must be text, not 8$"),
        (
            [{**WORKDAY, "duration_s": 59}],
            r"^schedule.excluded\[0\].duration_s: must be an integer",
        ),
        ([{**WORKDAY, "duration_s": "10h"}], r"^schedule.excluded\[0\].duration_s: must be an int"),
        ([{**WORKDAY, "time_zone": "CEST+"}], r"^schedule.excluded\[0\].time_zone: must be a name"),
    ],
)
def test_a_period_that_is_none_is_refused_by_its_place_and_field(
    periods: object, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse({"schedule": {"excluded": periods}})


def test_a_section_takes_periods_only() -> None:
    with pytest.raises(InvalidInputError, match=r"^schedule.floors: must be a list"):
        SchedulePolicy(floors=(Period("0 8 * * *", 60),))  # type: ignore[arg-type]
