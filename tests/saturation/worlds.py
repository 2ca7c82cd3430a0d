"""Constants without friction, so that a step is bytes over bandwidth, and points on them."""

from dse.saturation.constants import Constants
from dse.saturation.curve import curve_of, stack
from dse.saturation.model import Load, throughput
from tests import worlds

# No launch, no host: HBM alone prices a step once the tensor cores are out of the way.
FREE = Constants(
    weight_efficiency=1.0,
    kv_efficiency=1.0,
    compute_efficiency=1.0,
    launch_s=0.0,
    step_s=0.0,
    request_s=0.0,
    prefill_layer_s=0.0,
    pool_use=1.0,
)
ENDLESS = dict.fromkeys(("bf16", "fp8", "fp32"), 1e30)
NO_COMPUTE = worlds.gpu(peak_flop_per_s=ENDLESS, l2_bytes=1e12)

# The tiny model's weights of every step: two layers of attention and SwiGLU, and the head.
TINY_WEIGHT_BYTES = 2 * (2 * (128 * 16 * 16 + 8 * 16 * 128 + 3 * 128 * 256) + 1024 * 128)
TINY_KV_BYTES = 2 * 2 * 4 * 32  # layers × 16 bits × KV heads × (key + value)


def tiny(**changes):
    given = {"on": NO_COMPUTE} | changes
    return worlds.deployment(worlds.tiny(), **given)


def predict(deployment, constants=FREE, **load):
    given = {"concurrency": 1, "isl_tokens": 128, "osl_tokens": 64} | load
    return throughput(stack([curve_of(deployment, constants)]), 0, Load(**given))
