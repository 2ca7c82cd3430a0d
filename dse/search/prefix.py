"""What the first requests of a closed loop say of all: the simulator itself, on a shorter run.

Until the last request of the shorter run is asked, both runs are the same. So whatever it served
had these latencies in the whole run as well, but for those that were in flight at that moment: no
more than the loop holds. The late ones among the others are late in the whole run.
"""

import numpy as np

from dse.base.errors import DseError
from dse.search.offered import Offered, attainment_at_most, may_be_late
from dse.search.work import one_of_equals
from dse.serving.deployment import Deployment
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import RunSpec, realised_requests, simulate
from dse.sim.sketch import MAX_SAMPLES

# Requests beyond those that would prove it if each of them were late, and the share of a run from
# which on a shorter one is not worth its time.
_MORE, _WORTH = 1.15, 0.5


def most_on_time(
    deployment: Deployment,
    spec: RunSpec,
    asked: tuple[Workload, int],
    offered: Offered,
    slo: SLO,
) -> float:
    """The attainment of `slo` by a workload's replicate, at most; 1 where a short run proves
    nothing.

    `offered` are its requests: a closed loop of plain ones, all of them accepted and measured.
    """
    one, part = one_of_equals(spec, offered)
    # The last of the parts may have a request less, so their sizes do not tell how many there are.
    copies = spec.pools[0].n_replicas // one.pools[0].n_replicas
    late_enough = may_be_late(part.n, slo.attainment) + 1
    first = int(np.ceil(_MORE * (part.concurrency + late_enough)))
    if first > min(_WORTH * part.n, MAX_SAMPLES):
        return 1.0
    workload, seed = asked
    requests = realised_requests(workload, seed)
    some = requests.take(np.arange(first * copies), requests.concurrency)
    try:
        found = simulate(deployment, workload, seed, spec=spec, requests=some)
    except DseError:
        return 1.0
    late = round(first * (1.0 - found.slo_attainment(slo))) - part.concurrency
    return attainment_at_most(part.n - max(late, 0), part.n)
