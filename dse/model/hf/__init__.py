"""Hugging Face `config.json` (and `hf_quant_config.json`) → `Model`.

Every key of a config is either read, known to change neither shapes nor bytes (`_ignored`), or an
error that names it: a new key may be a new kind of attention, and a silent guess would be a wrong
purchase.
"""

from dse.model.hf._assemble import load, model_from

__all__ = ["load", "model_from"]
