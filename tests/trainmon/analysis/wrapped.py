"""What launchers, loggers and collectors of logs make of the lines of a program, as each of them prints it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

Wrap = Callable[[int, str], str]


def clock(at: int) -> str:
    return f"2026-11-23T10:{at // 60 % 60:02d}:{at % 60:02d}.{at * 7_919 % 1_000_000:06d}"


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def compact(record: Mapping[str, object]) -> str:
    return json.dumps(record, separators=(",", ":"))


def docker(at: int, line: str) -> str:
    return compact({"log": line + "\n", "stream": "stderr", "time": clock(at) + "123Z"})


def message(line: str) -> str:
    return json.dumps({"message": line, "levelname": "INFO"})


PLAIN: Mapping[str, Wrap] = {
    "torchrun, ranks": lambda at, line: f"[rank0]:{line}",
    "torchrun --tee": lambda at, line: f"[default7]:[rank7]: {line}",
    "torchrun, a role": lambda at, line: f"[trainer0]:{line}",
    "srun --label": lambda at, line: f"{12:>3}: {line}",
    "srun and ranks": lambda at, line: f"3: [rank3]: {line}",
    "mpirun": lambda at, line: f"[1,0]<stdout>:{line}",
    "mpirun --timestamp-output": lambda at, line: f"Mon Nov 23 10:00:{at % 60:02d} 2026[1,0]<stdout>:{line}",
    "mpirun --timestamp-output, no tag": lambda at, line: f"Mon Nov 23 10:00:{at % 60:02d} 2026<stdout>:{line}",
    "mpirun of PRRTE": lambda at, line: f"[prterun-n1-123@1,0]<stderr>: {line}",
    "clush": lambda at, line: f"gpu-017: {line}",
    "clush, no dash": lambda at, line: f"node0131: {line}",
    "pdsh": lambda at, line: f"gpu-017.cluster.local: {line}",
    "Ray": lambda at, line: f"(RayTrainWorker pid=12345, ip=10.0.0.3) {line}",
    "Ray, deduplicated": lambda at, line: f"(RayTrainWorker pid=12345) {line} [repeated 7x across cluster]",
    "Ray, an actor with a repr": lambda at, line: f"(TrainWorker(rank=0) pid=123) {line}",
    "SkyPilot": lambda at, line: f"(worker1, rank=1, pid=1234, ip=10.0.0.2) {line}",
    "CRI": lambda at, line: f"{clock(at)}123Z {'stderr' if at % 3 else 'stdout'} F {line}",
    "kubectl --timestamps": lambda at, line: f"{clock(at)}789Z {line}",
    "kubectl --prefix": lambda at, line: f"[pod/llama-worker-0/pytorch] {line}",
    "kubectl --prefix --timestamps": lambda at, line: f"[pod/train-9vqkz/main] {clock(at)}789Z {line}",
    "stern, a StatefulSet": lambda at, line: f"llama-worker-0 pytorch {line}",
    "stern, a Deployment": lambda at, line: f"pretrain-7d9f8b6c5d-x2x4z trainer {line}",
    "stern, a Job": lambda at, line: f"train-job-9vqkz main {line}",
    "stern, a container called train": lambda at, line: f"train-job-9vqkz train {line}",
    "stern, a replica with a container called train": lambda at, line: f"llama-worker-0 train {line}",
    "stern, a pod called train": lambda at, line: f"train-0 pytorch {line}",
    "stern, a pod called worker": lambda at, line: f"worker-3 pytorch {line}",
    "stern -A": lambda at, line: f"ml-team llama-worker-0 pytorch {line}",
    "stern --timestamps": lambda at, line: f"llama-worker-0 pytorch {clock(at)}123Z {line}",
    "Loki": lambda at, line: f'{clock(at)}Z {{app="llama", namespace="ml", pod="llama-worker-0"}} {line}',
    "Loki, no labels": lambda at, line: f"{clock(at)[:19]}Z {{}} {line}",
    "Loki, quotes in a label": lambda at, line: f'{clock(at)[:19]}Z {{pod="a-0", cmd="echo \\"hi\\""}} {line}',
    "docker compose": lambda at, line: f"trainer-1  | {line}",
    "docker compose v1": lambda at, line: f"train_worker_1   | {line}",
    "docker compose --timestamps": lambda at, line: f"trainer-1  | {clock(at)}123Z {line}",
    "journald": lambda at, line: f"Nov 23 10:00:{at % 60:02d} gpu-017 python3[4711]: {line}",
    "journald -o short-iso": lambda at, line: f"2026-11-23T10:00:{at % 60:02d}+0100 gpu-017 train.sh[4711]: {line}",
    "journald -o short-full": lambda at, line: f"Mon 2026-11-23 10:00:{at % 60:02d} CET gpu-017 python3[4711]: {line}",
    "syslog": lambda at, line: f"Nov 23 10:00:{at % 60:02d} gpu-017 train: {line}",
    "RFC 5424": lambda at, line: f"<14>1 {clock(at)}Z gpu-017 train 4711 - - {line}",
    "ts": lambda at, line: f"Nov 23 10:00:{at % 60:02d} {line}",
    "time in brackets": lambda at, line: f"[2026-11-23 10:00:{at % 60:02d}] {line}",
    "milliseconds since 1970": lambda at, line: f"{1_763_892_000_000 + at * 137} {line}",
    "seconds since 1970": lambda at, line: f"{1_763_892_000 + at}.{at % 1000:03d} {line}",
    "cat -n, a long log": lambda at, line: f"{1_000_000 + at}\t{line}",
    "cat -n": lambda at, line: f"{at + 1:6d}\t{line}",
}  # fmt: skip

RECORDS: Mapping[str, Wrap] = {
    "docker json-file": docker,
    "JSON with message": lambda at, line: json.dumps({"timestamp": clock(at), "level": "INFO", "message": line}),
    "JSON with log": lambda at, line: json.dumps({"log": line, "kubernetes": {"pod": "x-0"}, "@timestamp": clock(at)}),
    "logfmt": lambda at, line: f'time="{clock(at)}Z" level=info msg={quoted(line)}',
    "JSON of journald": lambda at, line: compact({"__REALTIME_TIMESTAMP": str(10**15 + at), "MESSAGE": line}),
    "JSON of logcli": lambda at, line: json.dumps({"labels": {"app": "x"}, "line": line, "timestamp": f"{clock(at)}Z"}),
    "JSON inside CRI": lambda at, line: f"{clock(at)}123Z stdout F {message(line)}",
    "JSON inside stern": lambda at, line: f"llama-worker-0 pytorch {message(line)}",
    "JSON inside stern -A": lambda at, line: f"ml-team pretrain-7d9f8b6c5d-x2x4z trainer {message(line)}",
    "JSON inside kubectl --prefix": lambda at, line: f"[pod/a-0/main] {message(line)}",
    "JSON inside kubectl --timestamps": lambda at, line: f"{clock(at)}000Z {message(line)}",
    "JSON inside compose": lambda at, line: f"trainer-1  | {message(line)}",
    "JSON inside srun --label": lambda at, line: f"{12:>3}: {message(line)}",
    "JSON inside journald": lambda at, line: f"Nov 23 10:00:{at % 60:02d} gpu-017 python3[4711]: {message(line)}",
    "JSON inside Loki": lambda at, line: f'{clock(at)}Z {{app="llama"}} {message(line)}',
    "JSON inside Ray": lambda at, line: f"(TrainWorker(rank=0) pid=123) {message(line)}",
    "JSON inside docker json-file": lambda at, line: docker(at, message(line)),
    "JSON inside JSON inside CRI": lambda at, line: f"{clock(at)}123Z stdout F {docker(at, message(line))}",
    "logfmt inside CRI": lambda at, line: f'{clock(at)}123Z stderr F time="{clock(at)}Z" level=info msg={quoted(line)}',
    "logfmt inside docker json-file": lambda at, line: docker(at, f"ts={clock(at)}Z level=info msg={quoted(line)}"),
    "logfmt of Go kit": lambda at, line: f"ts={clock(at)}Z caller=main.go:12 level=info message={quoted(line)}",
}

WRAPPERS: Mapping[str, Wrap] = {**PLAIN, **RECORDS}


def wrapped(name: str, lines: Iterable[str]) -> bytes:
    """The bytes of a log whose lines are wrapped."""
    return "".join(f"{WRAPPERS[name](at, line)}\n" for at, line in enumerate(lines)).encode()


def in_parts(lines: Iterable[str]) -> bytes:
    """The bytes of a log of a container runtime (CRI) whose long lines stand in two records."""
    texts = []
    for at, line in enumerate(lines):
        half = len(line) // 2
        texts += [f"{clock(at)}000Z stdout P {line[:half]}\n", f"{clock(at)}001Z stdout F {line[half:]}\n"]
    return "".join(texts).encode()
