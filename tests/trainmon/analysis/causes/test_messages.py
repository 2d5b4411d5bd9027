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
        (RAISED + "RuntimeError: checkpoint /ckpt/iter_40/model.pt is corrupted\n", "checkpoint-corrupt"),
        (RAISED + "ValueError: The weights in /ckpt/40 appear to be truncated\n", "checkpoint-corrupt"),
        ("checkpoint directory /ckpt is empty: training from the beginning\n", "unknown"),
        (RAISED + "ValueError: shard /mds/shard.00127.mds is corrupted: checksum mismatch\n", "data-error"),
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
        (
            RAISED + "ValueError: Requested shape: (32768, 8) is not compatible with the stored shape: (32000, 8).\n",
            "checkpoint-mismatch",
        ),
        (
            SHARDED + IN_PLANNER + "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/7/.metadata'\n",
            "checkpoint-corrupt",
        ),
        (RAISED + "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/7/meta.json'\n", "missing-file"),
        (RAISED + "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n", "driver-mismatch"),
        (
            RAISED + "torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware "
            "error\n",
            "gpu-hardware",
        ),
        (RAISED + "torch.AcceleratorError: CUDA error: invalid argument\n", "cuda-error"),
        (
            RAISED + "RuntimeError: Too many open files. Communication with the workers is no longer possible.\n",
            "dataloader-worker",
        ),
        (RAISED + "AssertionError: bad header, cannot read: /data/text_document.idx\n", "data-error"),
        (RAISED + "ValueError: bad header in reply\n", "python-exception"),
        (RAISED + "OSError: Failed to load tokenizer.\n", "config-error"),
        ("Error merging override optim.lrr=3\nKey 'lrr' is not in struct\n    full_key: optim.lrr\n", "config-error"),
        ("Error executing job with overrides: ['lr=3']\n" + RAISED + "KeyError: 'x'\n", "python-exception"),
        (
            RAISED + "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via "
            "CC environment variable.\n",
            "import-error",
        ),
        (RAISED + "torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in cpp.cxx\n", "import-error"),
        (
            "FATAL:   container creation failed: mount error: while mounting /a: mount source /a doesn't exist\n",
            "missing-file",
        ),
        ("WARNING: The node 'n7_31_0' has failed to shutdown the rendezvous 'x' due to an error\n", "unknown"),
        ("update_node: node n7 reason set to: bad\nrequeue job JobId=7 due to failure of node n7\n", "node-fail"),
        (
            RAISED + "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n\tpid: 7\n"
            "The actor is dead because its node has died. Node Id: 677d\n",
            "node-fail",
        ),
        (
            RAISED + "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
            "The actor is dead because its owner has died. Owner worker exit detail: Owner's node has crashed.\n",
            "node-fail",
        ),
        (
            RAISED + "jaxlib._jax.XlaRuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded\n"
            "RPC: /tensorflow.CoordinationService/RegisterTask\n",
            "rendezvous",
        ),
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.\n", "segfault"),
        ("NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13\nstep 9\nTraining done\n", "completed"),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406)\n", "gpu-hardware"),
        ("InternalError: Error writing checkpoint file: Resource exhausted: /d/model.ckpt-6.tempstate\n", "disk-full"),
        (RAISED + "tensorflow.errors.ResourceExhaustedError: gs://b/model.ckpt-6\n", "disk-full"),
        ("local_filesys.cc:39: Check failed: std::fwrite(p, 1, n, fp_) == n FileStream.Write incomplete", "disk-full"),
        (RAISED + "OSError: 52428800 requested and 1234 written\n", "disk-full"),
        ("srun: error: Something is wrong with the boot of the nodes.\n", "node-fail"),
        ("slurmstepd: error: *** JOB 7 ON n7 UNCORRECTABLE MEMORY ERROR AT 2024-05-07T11:18:52 ***\n", "node-fail"),
        (
            RAISED + "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n"
            "CUDA kernel errors might be asynchronously reported at some other API call.\n"
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.\nException in thread Thread-4:\n"
            f'{HEADER}\n  File "/usr/lib/python3.10/threading.py", line 9, in _bootstrap_inner\n'
            "RuntimeError: One or more background workers are no longer alive. Exiting.\n",
            "gpu-hardware",
        ),
        (RAISED + "RuntimeError: INTERNAL: Accelerator device halted prematurely, perhaps\n", "cuda-error"),
        ("Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation\n", "cuda-error"),
        ("HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access\n", "cuda-illegal-access"),
        ("HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate\n", "cuda-oom"),
        (RAISED + "ValueError: ('/d/train-07.tar (gs://b/train-07.tar) is not a tar archive', 7)\n", "data-error"),
        (
            RAISED + "OSError: ('gsutil cat gs://b/7.tar: exit 1 (read) {}', <Pipe>, 'pipe:gsutil cat gs://b/7.tar')\n",
            "network-or-auth",
        ),
        ('Lmod has detected the following error: The following module(s) are unknown:\n"cuda/11.8"\n', "import-error"),
        (
            "[E602 11:18:52 ProcessGroupNCCL.cpp:684] timed out after waiting for 60000ms flight recorder dumps to "
            "finish.\nSome NCCL operations have failed or timed out.\n",
            "nccl-timeout",
        ),
        ("WARN StateMonitor:Rank1 : kernel begins at work 55731 may hang in polling\n", "hang"),
        ("F0405 client.h:80] Terminating process. This most likely indicates that another task died.\n", "node-fail"),
        (
            RAISED + "tensorflow.python.framework.errors_impl.UnavailableError: failed to connect to all addresses\n",
            "nccl-network",
        ),
        (
            RAISED + "errors_impl.UnavailableError: Error executing an HTTP request: libcurl code 6 meaning "
            "'Couldn't resolve host name'\n",
            "network-or-auth",
        ),
        ("[n12:1811] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/IB (hw_synd 0/0)\n", "nccl-network"),
        (RAISED + "ClientError: An error occurred (403) when calling the HeadObject operation\n", "network-or-auth"),
        (
            RAISED + "S3UploadFailedError: Failed to upload a.pt to s3://b/a.pt: (ExpiredToken): token has expired\n",
            "network-or-auth",
        ),
        (RAISED + "RuntimeError: failed to write to the bucket s3://b: SlowDown\n", "storage-io"),
        ("训练完成\n", "completed"),
        ("Running training with loss f1\nAll training runs completed.\n", "completed"),
        ("step 1000/1000 | loss 2.0\nepoch done\n结果已保存到 ../output/accuracy.csv\n", "completed"),
        ("step 1000/1000 | loss 2.0\nbest_loss:  0.0767 best_epoch: 244\n", "completed"),
        ("waiting for 0/0\n", "unknown"),
        (
            RAISED + "RuntimeError: OPS function error: HcclAllreduce, error code is 6\n"
            "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.\n",
            "nccl-network",
        ),
        ("EE1002: rtDeviceSynchronize execute failed, reason=[stream sync timeout]\n", "nccl-timeout"),
        ("EH9999: rtMemcpy execute failed, reason=[driver error:internal error]\n", "cuda-error"),
        ("CudaAPIError: [700] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR\n", "cuda-error"),
        ("srun: fatal: SLURM_MEM_PER_CPU and SLURM_MEM_PER_GPU are mutually exclusive.\n", "config-error"),
        (RAISED + "lmdb.CorruptedError: /d/train.lmdb: MDB_CORRUPTED: Located page was wrong type\n", "data-error"),
        (
            f"Training done.\n{HEADER}\n"
            '  File "/x/bin/train", line 8, in <module>\n  File "/x/run.py", line 9, in perform_actual_validation\n'
            "RuntimeError: Some background workers are no longer alive\n",
            "evaluator",
        ),
        ("Rank 3 crashed with exit code -9.\nGlobal rank 0 (PID 4) exited with code 0\n", "host-oom"),
    ],
)  # fmt: skip
def test_a_message_means_what_it_says_wherever_it_stands(log: str, cause: CauseName) -> None:
    assert of(STEPS + log).cause == cause
