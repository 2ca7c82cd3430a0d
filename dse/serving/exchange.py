"""How an engine moves tokens to experts under a layout, and what that says of the layer's cut."""

from typing import Literal

from dse.model.shard import Shard
from dse.serving.engine import Engine
from dse.serving.layout import Layout

Exchange = Literal["none", "all_reduce", "all_gather", "deepep"]


def exchange_of(layout: Layout, engine: Engine) -> Exchange:
    """The exchange of a MoE layer: `all_reduce` of results where no attention DP cuts the tokens,
    else DeepEP where the engine has it and starts it under this layout, else `all_gather`.
    """
    if layout.stage_ranks == 1:
        return "none"
    if layout.dp == 1:
        return "all_reduce"
    if engine.exchange != "deepep" or layout.ep == 1:
        return "all_gather"
    cut = layout.ep != layout.stage_ranks
    return "all_gather" if cut and engine.rules.deepep_needs_whole_ep else "deepep"


def is_whole_group(layout: Layout, engine: Engine) -> bool:
    """Whether a MoE layer, shared expert and all, runs on the tokens of all DP ranks at once."""
    return engine.gathers_whole_layer and exchange_of(layout, engine) == "all_gather"


def moe_split(layout: Layout, engine: Engine) -> int:
    """Parts that the TP ranks of a DP rank make of its tokens for a MoE layer, one part each."""
    splits = engine.tp_tokens != "whole" and layout.dp > 1 and layout.ep > 1
    return layout.tp if splits and not is_whole_group(layout, engine) else 1


def shard_of(layout: Layout, engine: Engine) -> Shard:
    """How `engine` cuts one layer among the ranks of a stage of `layout`."""
    memory = engine.memory
    return layout.shard(
        shared_sharded=memory.shared_expert_sharded,
        moe_over_group=is_whole_group(layout, engine),
        moe_split=moe_split(layout, engine),
        dense_over_dp=memory.dense_ffn_over_dp,
        dense_whole=memory.dense_ffn_whole_with_ep and layout.dp > 1 and layout.ep > 1,
        vocab_over_dp=memory.vocab_over_dp,
    )
