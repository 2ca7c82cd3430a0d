"""Hand-sized worlds with whole logs: a step takes 1 s of host time, blocks hold 4 tokens."""

from dataclasses import replace

from dse.hardware import Link
from dse.serving.arrivals import AllAtOnce
from dse.serving.deployment import SpeculativeDecoding
from dse.serving.layout import Layout
from dse.serving.lengths import Constant
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst, Static
from dse.serving.workload import Sessions, Workload
from tests.sim.worlds import deployment, free, told, trace


def test_a_prompt_and_two_decode_steps() -> None:
    spec = free(deployment())
    workload = trace([(0.5, 4, 3)])
    assert told(spec, workload) == [
        "0.5 queued r0",
        "0.5 admitted r0",
        "0.5 step to 1.5: 1 seqs 4 tok 0 waiting 1 kv",
        "1.5 step to 2.5: 1 seqs 1 tok 0 waiting 2 kv",
        "2.5 step to 3.5: 1 seqs 1 tok 0 waiting 2 kv",
        "1.5 first_token r0",
        "3.5 finished r0",
    ]


def test_chunked_prefill_fills_the_budget_behind_the_decodes() -> None:
    spec = free(deployment(max_num_batched_tokens=4, scheduler=ChunkedPrefill()))
    workload = trace([(0, 3, 3), (0.5, 6, 2)])
    assert told(spec, workload) == [
        "0 queued r0",
        "0 admitted r0",
        "0 step to 1: 1 seqs 3 tok 0 waiting 1 kv",
        "0.5 queued r1",
        "1 admitted r1",
        "1 step to 2: 2 seqs 4 tok 0 waiting 2 kv",
        "2 step to 3: 2 seqs 4 tok 0 waiting 4 kv",
        "1 first_token r0",
        "3 finished r0",
        "3 step to 4: 1 seqs 1 tok 0 waiting 2 kv",
        "3 first_token r1",
        "4 finished r1",
    ]


def test_prefill_first_lets_decodes_wait() -> None:
    spec = free(deployment(max_num_batched_tokens=8, scheduler=PrefillFirst()))
    workload = trace([(0, 3, 3), (0.5, 6, 2)])
    assert told(spec, workload) == [
        "0 queued r0",
        "0 admitted r0",
        "0 step to 1: 1 seqs 3 tok 0 waiting 1 kv",
        "0.5 queued r1",
        "1 admitted r1",
        "1 step to 2: 1 seqs 6 tok 0 waiting 3 kv",
        "2 step to 3: 2 seqs 2 tok 0 waiting 3 kv",
        "2 first_token r1",
        "3 finished r1",
        "3 step to 4: 1 seqs 1 tok 0 waiting 2 kv",
        "1 first_token r0",
        "4 finished r0",
    ]


def test_a_static_batch_lets_nobody_join() -> None:
    spec = free(deployment(max_num_seqs=2, scheduler=Static()))
    workload = trace([(0, 3, 3), (0, 6, 1), (0, 2, 2)])
    assert told(spec, workload) == [
        "0 queued r0",
        "0 queued r1",
        "0 queued r2",
        "0 admitted r0",
        "0 admitted r1",
        "0 step to 1: 2 seqs 9 tok 1 waiting 3 kv",
        "1 first_token r1",
        "1 finished r1",
        "1 step to 2: 1 seqs 1 tok 1 waiting 1 kv",
        "2 step to 3: 1 seqs 1 tok 1 waiting 2 kv",
        "1 first_token r0",
        "3 finished r0",
        "3 admitted r2",
        "3 step to 4: 1 seqs 2 tok 0 waiting 1 kv",
        "4 step to 5: 1 seqs 1 tok 0 waiting 1 kv",
        "4 first_token r2",
        "5 finished r2",
    ]


def test_the_youngest_gives_way_and_is_computed_again() -> None:
    spec = free(deployment(blocks=3))
    workload = trace([(0, 4, 5), (0, 4, 5)])
    assert told(spec, workload) == [
        "0 queued r0",
        "0 queued r1",
        "0 admitted r0",
        "0 admitted r1",
        "0 step to 1: 2 seqs 8 tok 0 waiting 2 kv",
        "1 preempted r1",
        "1 step to 2: 1 seqs 1 tok 1 waiting 2 kv",
        "2 step to 3: 1 seqs 1 tok 1 waiting 2 kv",
        "3 step to 4: 1 seqs 1 tok 1 waiting 2 kv",
        "4 step to 5: 1 seqs 1 tok 1 waiting 2 kv",
        "1 first_token r0",
        "5 finished r0",
        "5 admitted r1",
        "5 step to 6: 1 seqs 5 tok 0 waiting 2 kv",
        "6 step to 7: 1 seqs 1 tok 0 waiting 2 kv",
        "7 step to 8: 1 seqs 1 tok 0 waiting 2 kv",
        "8 step to 9: 1 seqs 1 tok 0 waiting 2 kv",
        "1 first_token r1",
        "9 finished r1",
    ]


def test_whole_blocks_of_a_shared_prefix_are_found() -> None:
    spec = free(deployment(max_num_seqs=1))
    workload = Workload(
        arrivals=AllAtOnce(), n_requests=2, isl=Constant(n_tokens=9), osl=Constant(n_tokens=1),
        shared_prefix_tokens=8,
    )  # fmt: skip
    assert told(spec, workload) == [
        "0 queued r0",
        "0 queued r1",
        "0 admitted r0",
        "0 step to 1: 1 seqs 9 tok 1 waiting 3 kv",
        "1 first_token r0",
        "1 finished r0",
        "1 admitted r1 hit 8",
        "1 step to 2: 1 seqs 1 tok 0 waiting 3 kv",
        "2 first_token r1",
        "2 finished r1",
    ]


def test_the_next_turn_finds_what_was_said() -> None:
    spec = free(deployment(max_num_seqs=1))
    workload = Workload(
        arrivals=AllAtOnce(), n_requests=2, isl=Constant(n_tokens=5), osl=Constant(n_tokens=3),
        sessions=Sessions(turns=Constant(n_tokens=2), think_s=2.0),
    )  # fmt: skip
    assert told(spec, workload) == [
        "0 queued r0",
        "0 admitted r0",
        "0 step to 1: 1 seqs 5 tok 0 waiting 2 kv",
        "1 step to 2: 1 seqs 1 tok 0 waiting 2 kv",
        "2 step to 3: 1 seqs 1 tok 0 waiting 2 kv",
        "1 first_token r0",
        "3 finished r0",
        "5 queued r1",
        "5 admitted r1 hit 4",
        "5 step to 6: 1 seqs 9 tok 0 waiting 4 kv",
        "6 step to 7: 1 seqs 1 tok 0 waiting 4 kv",
        "7 step to 8: 1 seqs 1 tok 0 waiting 4 kv",
        "6 first_token r1",
        "8 finished r1",
    ]


def test_data_parallel_ranks_step_together() -> None:
    spec = free(deployment(layout=Layout(dp=2)))
    workload = trace([(0, 4, 3), (0, 4, 1), (0.5, 4, 1)])
    assert told(spec, workload) == [
        "0 queued r0",
        "0 queued r1",
        "0 admitted r0",
        "0 admitted r1",
        "0 step to 1: 2 seqs 8 tok 0 waiting 2 kv",
        "0.5 queued r2",
        "1 first_token r1",
        "1 finished r1",
        "1 admitted r2",
        "1 step to 2: 2 seqs 5 tok 0 waiting 3 kv",
        "2 first_token r2",
        "2 finished r2",
        "2 step to 3: 1 seqs 1 tok 0 waiting 2 kv",
        "1 first_token r0",
        "3 finished r0",
    ]


def test_micro_batches_take_turns() -> None:
    spec = free(deployment(layout=Layout(pp=2)))
    workload = trace([(0, 4, 2), (0, 4, 2)])
    assert told(spec, workload) == [
        "0 queued r0",
        "0 queued r1",
        "0 admitted r0",
        "0 step to 1: 1 seqs 4 tok 1 waiting 1 kv",
        "1 admitted r1",
        "1 step to 2: 1 seqs 4 tok 0 waiting 2 kv",
        "2 step to 3: 1 seqs 1 tok 0 waiting 3 kv",
        "1 first_token r0",
        "3 finished r0",
        "3 step to 4: 1 seqs 1 tok 0 waiting 2 kv",
        "2 first_token r1",
        "4 finished r1",
    ]


def test_accepted_drafts_come_with_the_token() -> None:
    drafts = SpeculativeDecoding(method="draft", n_draft=2, acceptance=1.0)
    spec = free(deployment(changes={"speculative": drafts}))
    workload = trace([(0, 4, 6)])
    assert told(spec, workload) == [
        "0 queued r0",
        "0 admitted r0",
        "0 step to 1: 1 seqs 4 tok 0 waiting 1 kv",
        "1 step to 2: 1 seqs 3 tok 0 waiting 2 kv",
        "2 step to 3: 1 seqs 3 tok 0 waiting 3 kv",
        "1 first_token r0",
        "3 finished r0",
    ]


def test_prefill_and_decode_apart_are_a_tandem_queue() -> None:
    together = deployment()
    pool = together.pools[0]
    link = Link(n_gpus=2, bytes_per_s=1e30, latency_s=0.25, latency_floor_s=0.0)
    pools = (replace(pool, role="prefill"), replace(pool, role="decode"))
    apart = replace(together, pools=pools, interconnect=link)
    spec = free(apart)
    workload = trace([(0, 4, 3), (0.5, 4, 2)])
    assert told(spec, workload) == [
        "0 queued r0",
        "0 admitted r0",
        "0 step to 1: 1 seqs 4 tok 0 waiting 1 kv",
        "0.5 queued r1",
        "1.25 transferred r0",
        "1 admitted r1",
        "1 step to 2: 1 seqs 4 tok 0 waiting 1 kv",
        "1.25 queued r0",
        "1.25 admitted r0 hit 4",
        "1.25 step to 2.25: 1 seqs 1 tok 0 waiting 2 kv",
        "2.25 transferred r1",
        "2.25 queued r1",
        "2.25 admitted r1 hit 4",
        "2.25 step to 3.25: 2 seqs 2 tok 0 waiting 4 kv",
        "1 first_token r0",
        "3.25 finished r0",
        "2 first_token r1",
        "3.25 finished r1",
    ]
