"""A policy as users write it: a file, and single knobs beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancedstream.core.policy import BalancePolicy, Policy, ScalingPolicy, knobs, to_mapping
from balancedstream.errors import InvalidInputError
from balancedstream.launch.policies import read_policy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text("balance: {act_above: 1.5, mode: advise}\nwindow:\n")
    return path


def test_without_a_file_and_knobs_it_is_the_default() -> None:
    assert read_policy(None) == read_policy(None, {}) == Policy()


def test_single_knobs_stand_in_for_those_of_the_file(file: Path) -> None:
    assert read_policy(file).balance == BalancePolicy(act_above=1.5, mode="advise")
    knobs = {"balance.mode": "auto", "scaling.max_executors": "6", "scaling.mode": "off"}
    policy = read_policy(file, knobs)
    assert policy.balance == BalancePolicy(act_above=1.5)
    assert policy.scaling == ScalingPolicy(max_executors=6, mode="off")


def test_removed_knobs_are_taken_from_the_file_and_beside_it_and_named(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("balance: {stop_at: 1.3, act_above: 1.5}\nmigration: {strategy: fluid}\n")
    policy = read_policy(path)
    assert policy == Policy(balance=BalancePolicy(act_above=1.5))
    assert [knob.path for knob in policy.removed] == ["balance.stop_at", "migration.strategy"]
    for file in (None, path):
        policy = read_policy(file, {"scaling.metric_failures": "5"})
        assert "scaling.metric_failures" in [knob.path for knob in policy.removed]


@pytest.mark.parametrize(
    ("knob", "text", "said"),
    [
        ("balance.act_abov", "1.5", "balance.act_abov: no such knob"),
        ("blance.act_above", "1.5", "blance.act_above: no such knob"),
        ("window", "5", "window: no such knob"),
        ("window.batches", "many", "window.batches: must be an integer from 1 to 1000, not 'many'"),
        ("window.batches", "[", "window.batches: must be an integer"),
        ("balance.mode", "automatic", "balance.mode: must be one of auto, advise, off"),
    ],
)
def test_a_knob_that_is_wrong_is_named(knob: str, text: str, said: str, file: Path) -> None:
    for path in (None, file):
        with pytest.raises(InvalidInputError, match=r"knob|must be") as refused:
            read_policy(path, {knob: text})
        assert str(refused.value).startswith(said)


@pytest.mark.parametrize("value", ["!!bool x", "!!float ''", "!!int ''"])
def test_a_value_whose_tag_does_not_fit_is_named(value: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f"window: {{batches: {value}}}")
    with pytest.raises(InvalidInputError, match=r"window\.batches: must be an integer"):
        read_policy(path, {})


def test_what_is_wrong_in_the_file_is_said_whatever_the_knobs(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("- balance\n")
    with pytest.raises(InvalidInputError, match="policy: must be a mapping"):
        read_policy(path, {"window.batches": "4"})


BOMB = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 30))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("balance: {act_above: 2024-13-45}", "balance.act_above: must be a number"),
        ("balance: {act_above: 2024-01-01}", "balance.act_above: must be a number"),
        ("balance: {act_above: 2024-01-01T99:00:00Z}", "balance.act_above: must be a number"),
        ("window: {batches: " + "9" * 5000 + "}", "window.batches: must be an integer"),
        ("window: {batches: 0x" + "f" * 5000 + "}", "window.batches: must be an integer"),
        ("window: {batches: 0b" + "1" * 50_000 + "}", "window.batches: must be an integer"),
        ("window: {batches: 1e999}", "window.batches: must be an integer"),
        ("balance: {act_above: .nan}", "balance.act_above: must be a number"),
        ("balance: {act_above: !!int x}", "balance.act_above: must be a number"),
        ("balance: {act_above: !!python/object:os.system x}", "balance.act_above: must be a"),
        ("balance: {act_above: [1.5]}", "balance.act_above: must be a single value, not a list"),
        ("balance: {act_above: {}}", "balance.act_above: must be a single value, not a mapping"),
        ("balance: " + "[" * 5000, "policy: has brackets in brackets"),
        ("{" * 5000, "policy: has brackets in brackets"),
        ("balance: {mode: auto}\nbalance: {mode: off}", "balance: is there twice, .* line 2"),
        ("balance:\n  mode: auto\n  mode: off", "balance.mode: is there twice, .* line 3"),
        ("balance: {mode: auto, 'mode': off}", "balance.mode: is there twice"),
        ("balance: &b {mode: auto}\nscaling: {<<: *b}", "scaling.<<: must be a single value"),
        (BOMB, "a0: must be a mapping of its fields, not a list"),
        ("&a {balance: *a}", "balance.balance: must be a single value, not a mapping"),
        ("balance: [1]", "balance: must be a mapping of its fields, not a list"),
        ("balance: 7", "balance: must be a mapping of its fields, not '7'"),
        ("balance: *b", "policy: is not YAML, line 1: found undefined alias 'b'"),
        ("? [balance]\n: 1", "policy: the name of a field must be a word, not a list"),
        ("? " + "x" * 50_000 + "\n: {}", "policy.x{80}: unknown field"),
        ("balance: {act_above: " + "x" * 50_000 + "}", "balance.act_above: must be a number"),
        ("balance: {}\n---\nbalance: {}", "policy: is not YAML, line 2"),
        ("balance: {\x00}", "policy: is not YAML"),
        ("#" * 70_000, "policy: has more than 65536 bytes"),
    ],
)
def test_what_is_no_policy_is_one_sentence_that_names_the_field(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=f"^{said}") as refused:
        read_policy(path)
    message = str(refused.value)
    assert message.endswith(f"(in {path})")
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))


def test_an_anchor_may_name_a_value_or_a_section(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("balance: {act_above: &high 1.5}\nscaling: &s\nwindow: *s\n")
    assert read_policy(path).balance.act_above == 1.5


def test_the_policy_that_is_printed_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(to_mapping(Policy())))
    assert read_policy(path) == Policy()


PATHS = [knob.path for knob in knobs()]
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.datetimes()
    | st.binary(max_size=9) | st.text(max_size=9) | st.from_regex(r"[-+0-9._:eTZxob]{1,30}")
)  # fmt: skip
names = st.sampled_from([*"abc", *(word for path in PATHS for word in path.split("."))])
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | scalars, inner, max_size=4),
)
pieces = st.sampled_from(
    [
        *"[]{}:,-?!&*<>|%@`#'\"\n\t \0\x85\u2028",
        "balance",
        "act_above",
        ": ",
        "\n  ",
        "1.5",
        "!!",
        "---",
    ]
)


def refuse(path: Path | None, knobs: dict[str, str] | None = None) -> str:
    """What is said of a policy; nothing if it is one."""
    try:
        read_policy(path, knobs)
    except InvalidInputError as error:
        return str(error)
    return ""


def read_anything(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    said = refuse(path)
    assert not said or str(path) in said
    assert "\n" not in said


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60) | st.lists(pieces, max_size=30).map("".join))
def test_no_text_is_more_than_refused(tmp_path: Path, text: str) -> None:
    read_anything(tmp_path / "policy.yaml", text.encode("utf-8", "surrogatepass"))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees, st.booleans())
def test_no_tree_is_more_than_refused(tmp_path: Path, tree: object, flow: bool) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True)
    read_anything(tmp_path / "policy.yaml", text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_are_more_than_refused(tmp_path: Path, content: bytes) -> None:
    read_anything(tmp_path / "policy.yaml", content)


@settings(max_examples=200)
@given(st.sampled_from(PATHS), st.text(max_size=20) | st.lists(pieces, max_size=9).map("".join))
def test_no_text_of_a_knob_is_more_than_refused(path: str, text: str) -> None:
    assert len(refuse(None, {path: text})) < 600


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 5000, "2024-13-45", "0x" + "f" * 5000])
def test_a_knob_with_a_hostile_value_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^window.batches: must be an integer .{0,120}$"):
        read_policy(None, {"window.batches": text})


def test_periods_are_read_from_a_file_and_from_a_knob(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "schedule:\n"
        "  excluded:\n"
        "    - cron: 0 8 * * 1-5\n"
        "      time_zone: Europe/Berlin\n"
        "      duration_s: 36000\n"
    )
    (period,) = read_policy(file).schedule.excluded
    assert (period.cron, period.time_zone, period.duration_s) == (
        "0 8 * * 1-5",
        "Europe/Berlin",
        36_000,
    )
    text = '[{cron: "0 8 * * 1-5", duration_s: 3600, min_executors: 6}]'
    policy = read_policy(file, {"schedule.floors": text})
    assert policy.schedule.floors[0].min_executors == 6
    assert policy.schedule.excluded == (period,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 8 * * *", r"^schedule.excluded: must be a list of at most 8, each with cron"),
        ("[[1]]", r"^schedule.excluded\[0\]: must be a single value, not a list"),
        ("[1]", r"^schedule.excluded\[0\]: must be a mapping of cron"),
        ("[{cron: [1]}]", r"^schedule.excluded\[0\].cron: must be a single value, not a list"),
        ("[{cron: a, cron: b}]", r"^schedule.excluded\[0\].cron: is there twice"),
        (
            '[{cron: "0 8 * * *", duration_s: 1h}]',
            r"^schedule.excluded\[0\].duration_s: must be an",
        ),
    ],
)
def test_a_list_that_is_none_is_refused_by_the_name_of_its_field(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_policy(None, {"schedule.excluded": text})
