"""Messages whose cause stands on another line than the exception, or that resemble those of another cause."""

from __future__ import annotations

import pytest

from tests.trainmon.analysis.causes.logs import of
from trainmon.model import CauseName

STEPS = "".join(f"step {n}/1000 | loss 2.{n}\n" for n in range(1, 30))
HEADER = "Traceback (most recent call last):"
RAISED = f'{HEADER}\n  File "/home/ana/train.py", line 9, in <module>\n    main()\n'
IN_PLANNER = f'{HEADER} (RANK 0)\n  File "/x/checkpoint/utils.py", line 3, in reduce_scatter\n    data = map_fun()\n'
SHARDED = RAISED + "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])\n"
FULL = "touch: cannot touch '/data/a': No space left on device\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (SHARDED + IN_PLANNER + "RuntimeError: Missing key in checkpoint state_dict: head.\n", "checkpoint-mismatch"),
        (
            SHARDED + "ValueError: Size mismatch between saved torch.Size([2]) and current: torch.Size([3]) for w\n",
            "checkpoint-mismatch",
        ),
        (SHARDED + IN_PLANNER + "OSError: [Errno 5] Input/output error: '/ckpt/7'\n", "storage-io"),
        (SHARDED, "python-exception"),
        (RAISED + "RuntimeError: DataLoader timed out after 600 seconds\n", "dataloader-worker"),
        (RAISED + "RuntimeError: \n    CUDA Setup failed despite GPU being available.\n", "driver-mismatch"),
        (RAISED + "AssertionError\nCUDA Setup failed despite GPU being available.\n", "assertion"),
        (
            RAISED + "deepspeed.op.CUDAMismatchException: Installed CUDA version 12.4 does not match 11.8\n",
            "driver-mismatch",
        ),
        (FULL + "df: /data: no free inodes\nOSError: [Errno 28] No space left on device\n", "inodes-full"),
        (FULL + "OSError: [Errno 28] No space left on device\n", "disk-full"),
        ("FATAL:   could not open image /i/torch.sif: lstat /i/torch.sif: no such file or directory\n", "missing-file"),
        ("FATAL:   could not open image /i/torch.sif: image format not recognized\n", "config-error"),
        (RAISED + "ValueError: corrupted shard train-0007.tar: unexpected end of data\n", "data-error"),
        (RAISED + "OSError: corrupted shard model-00001-of-00002.safetensors\n", "checkpoint-corrupt"),
        ("CommandNotFoundError: Your shell has not been properly configured to use conda\n", "config-error"),
        ("using eio backend\nRBm Eio 8 x\n", "unknown"),
        ("write failed: EIO\n", "storage-io"),
        (RAISED + "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Was it closed?\n", "nccl-network"),
        (RAISED + "torch.distributed.DistNetworkError: The client socket has timed out after 60s\n", "rendezvous"),
        (RAISED + "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly\n", "dataloader-worker"),
        (RAISED + "x.ResourceExhaustedError: /ckpt/part-00000; Disk quota exceeded [Op:SaveV2]\n", "quota"),
        (RAISED + "ResourceExhaustedError: OOM when allocating tensor\n", "cuda-oom"),
        (
            RAISED + "OSError: [Errno 28] No space left on device: '/data/a'\n"
            "Filesystem      Inodes  IUsed IFree IUse% Mounted on\n/dev/sda1     6553600 6553600     0  100% /data\n",
            "inodes-full",
        ),
        (
            "/dev/loop3 10803 10803 0 100% /snap/core\n" + RAISED + "OSError: [Errno 28] No space left on device\n",
            "disk-full",
        ),
        (RAISED + "ValueError: Network outputs is NAN! Stop Training\n", "diverged"),
        (
            RAISED + "tensorflow.framework.errors_impl.InvalidArgumentError: Expected image (JPEG, PNG, or GIF), "
            "got unknown format starting with 'xx'\n",
            "data-error",
        ),
        ("job deleted at request of root\njob preempted (node failure)\n", "node-fail"),
        (
            RAISED + "pytorch_lightning.utilities.exceptions.MisconfigurationException: You requested gpu: [0, 1]\n"
            " But your machine only has: [0]\n",
            "config-error",
        ),
        (
            RAISED + "lightning.utilities.exceptions.MisconfigurationException: No supported gpu backend found!\n",
            "driver-mismatch",
        ),
    ],
)  # fmt: skip
def test_a_message_means_what_it_says_wherever_it_stands(log: str, cause: CauseName) -> None:
    assert of(STEPS + log).cause == cause
