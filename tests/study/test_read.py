"""A study's file: what it resolves to, and every fault of it and of its space at once."""

from dataclasses import replace

import pytest

from dse.base.errors import SourceError, StudyError
from dse.serving.arrivals import ClosedLoop, ConstantRate, Gamma, Poisson
from dse.serving.lengths import Constant, Lognormal, Uniform
from dse.space import points, size, structures
from dse.study import Load, load_study


def rows(study):
    found = points(study.space, structures(study.space, study.catalog))
    return found.sort("point").collect().rows(named=True)


def faults(path, **options) -> list[str]:
    with pytest.raises(SourceError) as raised:
        load_study(path, **options)
    return [str(fault).removeprefix(f"{path.parent}/") for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qestion: Why?", "study.yaml:1:1: qestion: unknown key"),
        ("space: none.yaml", "study.yaml:1:8: space: no file"),
        ("load: open", "load: 'open' is not allowed; one of closed_loop, max_goodput"),
        ("load: {req_per_s: []}", "the axis is empty"),
        ("load: max_goodput\nworkload: {requests: 9}", "max_goodput needs an slo"),
        ("load: {concurrency: [8]}", "this load leaves no use for batch in branch all"),
        ("load: {req_per_s: [8]}", "this load sets no concurrency; give a count"),
        ("workload: {}", "requests is missing"),
        ("workload: {requests: many}", "'many' is not a count"),
        ("workload: {requests: 0}", "no request at all"),
        ("workload: {requests: 9, lengths: {uniform: [1.0, 0.8]}}", "give 0 < low <= high"),
        ("objectives: []", "no objective; name one or more"),
        ("objectives: [tpot_men]", "study.yaml:1:14: objectives.0: no objective 'tpot_men'; did"),
        ("objectives: [tpot_mean, tpot_mean]", "tpot_mean is named twice"),
        ("objectives: [goodput_req_per_s_per_gpu]", "goodput_req_per_s_per_gpu needs an slo"),
        ("slo: {ttft: 3}", "slo.ttft: 3 is a bare number; a duration needs a unit"),
        ("slo: {ttft: 3 s, atainment: 0.9}", "did you mean attainment?"),
        ("constraints: [ttft_p98 < 3 s]", "names ttft_p98"),
        ("constraints: [ttft_p99 < 3]\nscreens: [mfu > 0.3]", "names mfu"),
        ("compare_by: colour", "'colour' is no column of every branch"),
        ("price: {h100-sxm: 3}", "price.h100-sxm: 3 is a bare number"),
        ("price: {h101-sxm: 3 USD/h}", "price.h101-sxm: no gpu 'h101-sxm'"),
        ("price: {h100-sxm: []}", "the list of prices is empty"),
        ("search: {method: bond}", "did you mean bound?"),
        ("search: {seeds: 0}", "seeds is 0"),
        ("search: {method: exhaustive, budget: 5}", "exhaustive simulates every survivor"),
        ("target: {req_per_s: 200 tok/s}", "target.req_per_s:"),
        ("catalog: [nowhere]", "no such catalog folder"),
        ("scenarios: {bad: [dear]}", "scenarios.bad.0: no override 'dear'"),
        ("space: {gpu: 3}", "required key 'model' is missing"),
    ],
)
def test_each_fault_has_its_place_and_a_hint(study_file, text, message):
    found = faults(study_file(text))
    assert any(message in fault for fault in found), found


def test_faults_of_study_and_space_come_at_once(study_file):
    found = faults(study_file("objectives: [tpot]\nlod: x", space="modl: x\nbatch: []"))
    assert {fault.partition(":")[0] for fault in found} == {"study.yaml", "space.yaml"}
    assert len(found) == 4


def test_a_space_in_place_reports_once(study_file):
    found = faults(study_file("space: {modl: x}"))
    assert len([fault for fault in found if "unknown key" in fault]) == 1


def test_a_closed_loop_fills_every_replica(study_file):
    study = load_study(study_file())
    found = rows(study)
    assert len(found) == size(study.space, study.catalog).n_points == 2 * 2 * 2
    row = found[-1]
    assert (row["tp"], row["batch"], row["n_replicas"]) == (2, 8, 4)
    assert study.loads(row) == Load(concurrency=32)
    workload = study.workload_of(row)
    assert workload.arrivals == ClosedLoop(concurrency=32)
    assert (workload.n_requests, workload.isl) == (320, Constant(n_tokens=1000))


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ("poisson", Poisson(req_per_s=2.0)),
        ("constant", ConstantRate(req_per_s=2.0)),
        ("{gamma: 1.5}", Gamma(req_per_s=2.0, cv=1.5)),
    ],
)
def test_rates_are_an_axis_and_arrive_as_stated(study_file, arrivals, expected):
    text = f"load: {{req_per_s: [0.5, 2]}}\nworkload: {{requests: 1k, arrivals: {arrivals}}}"
    study = load_study(study_file(text, space="n_gpus: 8"))
    found = rows(study)
    assert [row["req_per_s"] for row in found[:2]] == [0.5, 2.0]
    assert study.workload_of(found[1]).arrivals == expected
    assert study.workload_of(found[1]).n_requests == 1000


def test_concurrency_is_of_the_whole_deployment(study_file):
    study = load_study(study_file("load: {concurrency: {powers_of: 2, to: 4}}", space="n_gpus: 8"))
    assert [row["concurrency"] for row in rows(study)[:3]] == [1, 2, 4]
    assert study.workload_of(rows(study)[2]).n_requests == 40


def test_lengths_scale_with_the_context(study_file):
    study = load_study(study_file("workload: {requests: 5, lengths: {uniform: [0.8, 1.0]}}"))
    assert study.workload_of(rows(study)[0]).isl == Uniform(low_tokens=800, high_tokens=1000)
    study = load_study(study_file("workload: {requests: 5, lengths: {lognormal: 0.5}}"))
    assert study.workload_of(rows(study)[0]).osl == Lognormal(mean_tokens=100, cv=0.5)


def test_a_searched_load_is_given_by_the_probe(study_file):
    text = "load: max_goodput\nslo: {ttft: 1 s}\nworkload: {requests: 100}"
    study = load_study(study_file(text, space="n_gpus: 8"))
    (row, *_) = rows(study)
    assert study.is_load_searched
    assert study.workload_of(row, Load(req_per_s=3.0)).arrivals == Poisson(req_per_s=3.0)
    with pytest.raises(StudyError, match="the load of this study is searched"):
        study.workload_of(row)


OVERRIDES = """
price: {h100-sxm: [2 USD/h, 3 USD/h], h200-sxm: {capex: 8766 USD, years: 1, utilisation: 0.5}}
overrides:
  cheap: {price: {h200-sxm: 1 USD/h}}
  long: {space: {context: {isl: 32Ki, osl: 1Ki}, batch: [1]}}
scenarios: {today: [], pessimist: [cheap, long]}
"""


def test_a_scenario_lays_its_overrides_on_study_and_space(study_file):
    path = study_file(OVERRIDES)
    today = load_study(path, scenario="today")
    later = load_study(path, scenario="pessimist")
    gpu = today.catalog.gpu("h200-sxm")
    assert today.price_of("h200-sxm", gpu).usd_per_gpu_hour(gpu) == (2.0,)
    assert later.price_of("h200-sxm", gpu).usd_per_gpu_hour(gpu) == (1.0,)
    assert later.space.branches[0].contexts == ((32768, 1024),)
    assert today.study_id == load_study(path).study_id
    assert today.study_id != later.study_id


def test_an_unknown_scenario_names_the_known_ones(study_file):
    with pytest.raises(StudyError, match="no scenario 'pesimist'; did you mean pessimist"):
        load_study(study_file(OVERRIDES), scenario="pesimist")


def test_settings_win_over_the_file(study_file):
    settings = {"search.method": "exhaustive", "space.layout.tp": "[4]", "search.tolerance": "0"}
    study = load_study(study_file("search: {seeds: 2}"), set_=settings)
    assert (study.search.method, study.search.seeds, study.search.tolerance) == ("exhaustive", 2, 0)
    assert {row["tp"] for row in rows(study)} == {4}
    assert study.settings == settings


def test_a_wrong_setting_says_which(study_file):
    assert any(
        "--set search.methd=x" in each for each in faults(study_file(), set_=["search.methd=x"])
    )
    with pytest.raises(SourceError, match="is not a setting"):
        load_study(study_file(), set_=["search"])


def test_owned_hardware_costs_capital_and_energy(study_file):
    energy = "energy: 0.1 USD/kWh, pue: 1.2"
    text = f"price: {{h200-sxm: {{capex: 8766 USD, years: 1, utilisation: 50%, {energy}}}}}"
    study = load_study(study_file(text))
    gpu = study.catalog.gpu("h200-sxm")
    # 8766 USD over half of 8766 h, and 0.7 kW × 1.2 × 0.1 USD/kWh.
    (price,) = study.price_of("h200-sxm", gpu).usd_per_gpu_hour(gpu)
    assert price == pytest.approx(2.0 + gpu.tdp_watts / 1000 * 0.12)


def test_a_price_that_the_study_leaves_out_is_the_newest_of_the_catalog(study_file):
    study = load_study(study_file())
    price = study.price_of("h100-sxm", study.catalog.gpu("h100-sxm"))
    newest = max(study.catalog.prices("h100-sxm"), key=lambda quote: quote.date)
    assert price.usd_per_hour == (newest.usd_per_gpu_hour,)
    assert newest.date in price.source


def test_of_several_newest_quotes_the_cheapest_decides_and_says_so(study_file):
    study = replace(load_study(study_file()), price={})
    quotes = study.catalog.prices("h200-sxm")
    date = max(quote.date for quote in quotes)
    newest = [quote.usd_per_gpu_hour for quote in quotes if quote.date == date]
    assert max(newest) > min(newest), "the catalog no longer has two lists of one day"
    price = study.price_of("h200-sxm", study.catalog.gpu("h200-sxm"))
    assert price.usd_per_hour == (min(newest),)
    assert f"the cheapest of {len(newest)} quotes of {date}, up to {max(newest):g}" in price.source


def test_conditions_on_results_and_on_points(study_file):
    text = "constraints: [usd_per_mtok_output <= 2, ttft_p99 < 500 ms]\nscreens: [tp * n_gpus > 8]"
    study = load_study(study_file(text))
    assert [sorted(each.columns) for each in study.constraints] == [
        ["usd_per_mtok_output"],
        ["ttft_p99_s"],
    ]
    assert study.screens[0].columns == {"tp", "n_gpus"}
    assert "5e-1" in study.constraints[1].sql or "0.5e0" in study.constraints[1].sql


def test_the_text_of_a_study_is_what_was_understood(study_file):
    study = load_study(study_file(), set_={"search.seeds": "7"})
    assert study.document["search"] == {"seeds": 7}
    assert study.document["space"]["model"] == "llama-3.1-8b"
    assert '"seeds": 7' in study.text


def test_a_study_may_bring_its_own_catalog(study_file, tmp_path):
    (tmp_path / "mine/gpus").mkdir(parents=True)
    text = load_study(study_file()).catalog.path("gpu", "h100-sxm").read_text()
    (tmp_path / "mine/gpus/my-gpu.yaml").write_text(text.replace("H100-SXM", "My-GPU"))
    study = load_study(study_file("catalog: [mine]", space="gpu: my-gpu\nbatch: [1]"))
    assert {row["gpu"] for row in rows(study)} == {"my-gpu"}
