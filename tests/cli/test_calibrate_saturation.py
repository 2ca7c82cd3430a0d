"""The body of `dse calibrate saturation`: a fit on disk, and one JSON document."""

import json

import pytest

from dse.base.errors import UserError
from dse.cli._calibrate_saturation import saturation
from dse.saturation.constants import read_fit

HEADER = (
    "model,gpu,framework,date,n_gpus,tp,isl,osl,concurrency_or_batch,output_tok_s_total,tpot_ms,"
    "tpot_stat,load_mode,source,notes\n"
)
# Four points of Mind the Memory Gap (arXiv:2503.08311), as its repository publishes them.
POINTS = ((1, 90.8, 10.88), (16, 1161.2, 13.57), (64, 2912.4, 21.16), (128, 3772.0, 32.18))


def rows(tmp_path, engine="vllm"):
    lines = [
        f"llama-2-7b,H100-64GB,{engine},2025-02-21,1,1,250,131,{cap},{rate},{tpot},mean,"
        f"2000 requests at once,arXiv:2503.08311,"
        f'"num_gpu_blocks=5664 block_size=16; n=2000; args: --enable-chunked-prefill '
        f'--max-num-seqs={cap}"\n'
        for cap, rate, tpot in POINTS
    ]
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return path


def test_a_fit_on_disk_and_its_document(tmp_path, capsys):
    out = tmp_path / "fit.yaml"
    assert saturation(rows=rows(tmp_path), out=out, json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["out"] == str(out)
    (family,) = found["families"]
    assert family["n_rows"] == 4
    assert family["mape"] < 0.04
    assert read_fit(out).constants.kv_efficiency == pytest.approx(
        found["constants"]["kv_efficiency"], rel=1e-3
    )
    saturation(rows=rows(tmp_path), out=out)
    assert "kv efficiency" in capsys.readouterr().out


def test_no_usable_row_says_why(tmp_path):
    with pytest.raises(UserError, match="4 rows: engine is not vLLM"):
        saturation(rows=rows(tmp_path, "sglang"), out=tmp_path / "fit.yaml")
