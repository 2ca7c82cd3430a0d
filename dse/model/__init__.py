"""What is computed: layers, their weights, what they keep per token, and the ops of a step."""

from dse.model.model import LayerGroup, Model, Multimodal, Speculative
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor

__all__ = ["LayerGroup", "Model", "Multimodal", "Precision", "Shard", "Speculative", "Tensor"]
