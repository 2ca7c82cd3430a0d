"""Measured rows: what is read, and what is refused."""

import pytest

from dse.base.errors import SourceError, UserError
from dse.evidence.measurement import measurements, read_frame, read_measurements

HEADER = (
    "model,gpu,isl,osl,concurrency_or_batch,tpot_ms,tpot_stat,output_tok_s_total,dp_attn,"
    "notes,extra\n"
)
ROW = (
    'llama,H100,250,131.0,16,24.1,median,650.5,True,"num_gpu_blocks=2671 block_size=16; '
    'n=2000; mean_tpot=24.144; args: --port=1 --enable-chunked-prefill --max-num-seqs=16",kept\n'
)


def file(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_row_in_si(tmp_path):
    (row,) = read_measurements(file(tmp_path, HEADER + ROW))
    assert (row.line, row.model, row.isl_tokens, row.concurrency) == (2, "llama", 250.0, 16)
    assert row.tpot_s == pytest.approx(0.0241)
    assert row.output_tok_per_s == 650.5
    assert row.dp_attn is True
    assert row.ttft_s is None
    assert row.framework is None


def test_notes_hold_arguments_and_numbers(tmp_path):
    (row,) = read_measurements(file(tmp_path, HEADER + ROW))
    assert row.engine_arguments == {
        "port": "1", "enable-chunked-prefill": "", "max-num-seqs": "16",
    }  # fmt: skip
    assert row.kv_pool_tokens == 2671 * 16
    assert row.mean_tpot_s == pytest.approx(0.024144)
    assert row.note("n") == 2000
    assert row.note("absent") is None


def test_a_mean_is_a_mean(tmp_path):
    plain = "model,gpu,isl,osl,concurrency_or_batch,tpot_ms,tpot_stat\na,b,1,2,3,50,mean\n"
    (row,) = read_measurements(file(tmp_path, plain))
    assert row.mean_tpot_s == 0.05
    assert row.kv_pool_tokens is None
    assert row.engine_arguments == {}


def test_the_frame_keeps_further_columns_and_rows(tmp_path):
    frame = read_frame(file(tmp_path, HEADER + ROW + "x,,,,,,,,,,\n"))
    assert frame["extra"].to_list() == ["kept", None]
    assert len(measurements(frame)) == 1


def test_every_missing_column_at_once(tmp_path):
    with pytest.raises(SourceError) as caught:
        read_frame(file(tmp_path, "model,gpus,isl\na,b,1\n"))
    assert {fault.path for fault in caught.value.faults} == {"gpu", "osl", "concurrency_or_batch"}
    assert "did you mean gpus?" in str(caught.value)


def test_a_cell_that_is_no_number_names_its_place(tmp_path):
    with pytest.raises(SourceError) as caught:
        read_frame(file(tmp_path, HEADER + ROW.replace("250", "long")))
    (fault,) = caught.value.faults
    assert (fault.line, fault.path) == (2, "isl")
    assert "'long'" in fault.message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="absent"):
        read_frame(tmp_path / "absent.csv")


def test_the_public_rows_read(measured_data):
    frame = read_frame(measured_data / "truth" / "e2e_dev.csv")
    rows = measurements(frame)
    assert frame.height > 4000
    assert all(row.isl_tokens >= 0 for row in rows)
    assert len({row.line for row in rows}) == len(rows)
