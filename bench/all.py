"""All that is measured beside kubeadm, in one run: the benchmarks one after the other, all their figures as one table.

    floor      the parts of a cluster alone, by hand: what the others' figures are near, or far from
    up         from prepared hosts to a cluster that is Ready, of one node; its memory
    reboot     power cut of the only node
    ha_up      as up, of three control nodes and a worker
    ha_reboot  power cut of all four at once

`quorum`, `backup`, `upgrade`, `ha_upgrade` and `level_0` are not among them, and run by themselves.

About an hour. Nothing else should run on the machine meanwhile. What was measured is kept as JSON; `./run bench record`
makes docs/measurements.md of it.

    ./run bench [NAME] [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

import floor
import ha_reboot
import ha_up
import reboot
import up
from _floor import FLOOR
from _rounds import Benchmark, main

BENCHMARKS: dict[str, Benchmark] = {
    FLOOR: floor.run,
    "up": up.run,
    "reboot": reboot.run,
    "ha_up": ha_up.run,
    "ha_reboot": ha_reboot.run,
}

if __name__ == "__main__":
    main(__doc__, tuple(BENCHMARKS.values()))
