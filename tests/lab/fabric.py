"""A fabric with planted faults: the InfiniBand or RoCE ports of the nodes of one run, whose counters grow by a seed.
And what the ranks of a training wait for.

fabric = Fabric(seed=7).loses("n3", "mlx5_2/1")
fabric.advance(30.0); fabric.ports("n3"); fabric.write("n3", root)
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Literal

from trainmon.model import InfinibandPort, RankSteps

Shape = Literal["dense", "pipeline", "idle"]
"""How the traffic is spread: alike; by stage, up to 20 times as much; or only a few nodes have any."""

FAST, SLOW, STORAGE = "400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)", "100 Gb/sec (4X EDR)"
GB = 1e9

NOISE = {"out_of_sequence": 1e-9, "roce_adp_retrans": 2e-11, "packet_seq_err": 1e-11, "local_ack_timeout_err": 1e-12,
         "rnr_nak_retry_err": 1e-12, "np_cnp_sent": 2e-8, "rp_cnp_handled": 2e-8}  # fmt: skip
"""What a healthy port counts per byte. np_cnp_sent and rp_cnp_handled are congestion."""

ADAPTIVE = {"out_of_sequence": 2e-6}
"""With adaptive routing, all ports see packets out of order."""


class Fabric:
    """Nodes n1, n2 …, each with as many compute ports, and one for storage, mlx5_9/1, that only n1 uses much."""

    def __init__(
        self, seed: int, nodes: int = 8, ports: int = 4, shape: Shape = "dense", adaptive: bool = False
    ) -> None:
        self.random = Random(seed)
        self.names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.keys = tuple(f"mlx5_{number}/1" for number in range(ports))
        stages = [self.random.uniform(0.5, 10.0) * GB for _ in range(4)]
        self.traffic: dict[tuple[str, str], float] = {}
        for number, name in enumerate(self.names):
            busy = {"dense": 5.0 * GB, "pipeline": stages[number * 4 // nodes], "idle": 4.0 * GB * (number < 2)}[shape]
            self.traffic |= {(name, key): busy for key in self.keys}
            self.traffic[name, "mlx5_9/1"] = 3.0 * GB if number == 0 else 0.02 * GB
        self.noise = NOISE | ADAPTIVE if adaptive else NOISE
        self.lossy: dict[tuple[str, str], dict[str, float]] = {}
        self.rates = {where: STORAGE if where[1] == "mlx5_9/1" else FAST for where in self.traffic}
        self.sent = {where: float(self.random.randrange(10**15)) for where in self.traffic}
        self.counts = {
            where: {name: float(self.random.randrange(10**7)) for name in NOISE} for where in self.traffic
        }  # an old driver has counted for months

    def loses(self, node: str, port: str, per_byte: float = 5e-5, counter: str = "out_of_sequence") -> Fabric:
        """A bad cable."""
        self.lossy[node, port] = {counter: per_byte}
        return self

    def carries(self, node: str, port: str, times: float, instead: str | None = None) -> Fabric:
        """NCCL uses a port less, or more, than elsewhere; what it does not carry goes through another one instead."""
        usual = self.traffic[node, port]
        self.traffic[node, port] = times * usual
        if instead is not None:
            self.traffic[node, instead] += (1.0 - times) * usual
        return self

    def swaps(self, node: str, port: str, other: str) -> Fabric:
        """After a boot, two adapters have each other's name."""
        for known in (self.traffic, self.rates):
            known[node, port], known[node, other] = known[node, other], known[node, port]  # type: ignore[index]
        return self

    def slows(self, node: str, port: str, rate: str = SLOW) -> Fabric:
        self.rates[node, port] = rate
        return self

    def advance(self, seconds: float) -> Fabric:
        """Let the counters grow; now and then one port has a burst, or its driver is loaded again."""
        burst, reset = self.random.choice(list(self.traffic)), self.random.choice(list(self.traffic))
        for where, traffic in self.traffic.items():
            size = traffic * self.random.uniform(0.7, 1.3) * seconds
            self.sent[where] += size
            for name, per_byte in self.noise.items():
                expected = size * (per_byte + self.lossy.get(where, {}).get(name, 0.0))
                self.counts[where][name] += max(0.0, expected * self.random.lognormvariate(0.0, 0.5))
        if self.random.random() < 0.2:
            self.counts[burst]["out_of_sequence"] += 200_000
        if self.random.random() < 0.1:
            self.counts[reset] = dict.fromkeys(NOISE, 0.0)
        return self

    def ports(self, node: str) -> tuple[InfinibandPort, ...]:
        """As a probe reads them."""
        return tuple(
            InfinibandPort(
                port, "ACTIVE", 0, 0, self.rates[node, port], "InfiniBand", int(self.sent[node, port]) // 4 * 4,
                {name: int(value) for name, value in self.counts[node, port].items()},
            )
            for port in (*self.keys, "mlx5_9/1")
        )  # fmt: skip

    def write(self, node: str, root: Path) -> Fabric:
        """As files below /sys of this root."""
        for port in self.ports(node):
            device, _, number = port.port.partition("/")
            folder = root / "sys/class/infiniband" / device / "ports" / number
            for part in ("counters", "hw_counters"):
                (folder / part).mkdir(parents=True, exist_ok=True)
            texts = {"state": "4: ACTIVE", "rate": port.rate or "", "link_layer": port.link_layer or ""}
            texts |= {f"hw_counters/{name}": str(value) for name, value in port.counters.items()}
            texts |= {f"counters/{name}": "0" for name in ("link_downed", "symbol_error", "port_rcv_errors")}
            texts |= {"counters/port_xmit_data": "0", "counters/port_rcv_data": str((port.bytes or 0) // 4)}
            for name, text in texts.items():
                (folder / name).write_text(text + "\n")
        return self


Parallel = Literal["data", "tensor", "pipeline"]
"""All ranks do the same; one of eight loads the data of a group; or each stage waits for the ones before it."""


Wait = Literal["data", "vote"]


def waits(
    seed: int, ranks: int = 16, parallel: Parallel = "data", late: int | None = None, of: Wait = "data"
) -> dict[int, RankSteps]:
    """What the hooks of each rank say of their steps. One may be late in loading, or to the vote."""
    random = Random(seed)
    step_s, share = random.uniform(0.05, 5.0), random.uniform(0.0, 0.2)
    found = {}
    for rank in range(ranks):
        loads = {"data": share, "tensor": share * (rank % 8 == 0), "pipeline": share * (rank < 2)}[parallel]
        waited = {"data": share, "tensor": share, "pipeline": share * rank / ranks}[parallel]
        times = {"data": loads * random.uniform(0.7, 1.3), "vote": waited * random.uniform(0.6, 1.4)}
        if rank == 0:
            times |= {"vote": 0.0, "data": times["data"] * 3}  # it logs, and reads more
        if rank == late:
            times[of] = 1.0 if of == "data" else 0.0
        elif late is not None and of == "vote":
            times[of] = 0.3 * random.uniform(0.8, 1.2)
        found[rank] = RankSteps(100, int(1e6 * step_s), *(int(1e6 * step_s * times[one]) for one in ("data", "vote")))
    return found
