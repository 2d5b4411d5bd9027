"""Causes in files and file systems. Pure."""

from trainmon.analysis.causes.sieve import Rule

SHARD = r"shard(?!.{0,60}\.(?:tar|parquet|arrow|tfrecords?|jsonl?|csv|npy|mds|idx|zst)\b)"
"""A shard of a checkpoint, not of the data."""

STORAGE = (
    Rule(
        cause="quota", family="storage", retry="after-change", role="root",
        meaning="A quota of the user or the project is used up.",
        advice="Delete old checkpoints, or ask for a larger quota.",
        source="Linux: EDQUOT (122)",
        signs=(
            r"(?:disk|storage|user|group|project|file|block)? ?quota (?:exceeded|is exceeded|limit (?:reached"
            r"|exceeded))",
            r"exceeded .{0,30}(?:disk|storage|file|inode) quota", r"\bEDQUOT\b", r"\[Errno 122\]", r"Disk quota",
        ),
    ),
    Rule(
        cause="inodes-full", family="storage", retry="after-change", role="root",
        meaning="The file system has no inodes left: too many files.",
        advice="Delete or pack small files; compare df -i.",
        source="Linux: ENOSPC with free space; df -i",
        signs=(
            r"(?:out of|no(?: free| more)?|0 free) inodes?\b", r"\binodes? .{0,30}(?:exhausted|full|100%|used up)",
            r"No space left on device.{0,80}inode", r"^(?!\S*loop)\S+ +(\d{3,}) +\1 +0 +100% +/",
        ),
    ),
    Rule(
        cause="dataloader-worker", family="resources", retry="after-change", role="root",
        meaning="A data-loader worker died, mostly because /dev/shm is too small, or it gave no data in time.",
        advice=(
            "Give the container more shared memory (--shm-size, --ipc=host), or use fewer workers. After a timeout, "
            "test the storage of the data."
        ),
        source="PyTorch: DataLoader; multiprocessing: shared memory",
        signs=(
            r"insufficient shared memory", r"DataLoader timed out after",
            r"DataLoader worker.{0,40}killed by signal: Bus error", r"DataLoader worker.{0,60}exited unexpectedly",
            r"(?:unable to (?:write to|open|resize|mmap|allocate).{0,80}|shared memory.{0,40})(?:</torch_|/dev/shm"
            r"|/psm_)",
            r"(?:/dev/shm|shm|SemLock|shared memory).{0,120}(?:No space left|full)",
            r"No space left on device.{0,60}(?:/dev/shm|shm|</torch_|SemLock)", r"received \d+ items of ancdata",
            r"(?:increas|rais|limit).{0,60}(?:/dev/shm|shm[-_]size|shared memory segment)",
            r"Bus error.{0,80}(?:shm|shared memory)", r"unable to mmap \d+ bytes from file </torch",
            r"(?:Error while creating shared memory|creating shared memory segment).{0,120}",
            r"Failed to allocate shared memory", r"Too many open files.{0,40}\bworkers?\b",
        ),
    ),
    Rule(
        cause="disk-full", family="storage", retry="after-change", role="root",
        meaning="A disk is full.",
        advice="Free space on that file system, then resume. Check that the last checkpoint is complete.",
        source="Linux: ENOSPC (28); PyTorch: inline_container.cc; TensorFlow: IOErrorToStatus; NumPy: tofile",
        signs=(
            r"No space left on device", r"\[Errno 28\]", r"\bENOSPC\b", r"not enough (?:free )?(?:disk )?space",
            r"Not enough disk space", r"disk (?:is )?full", r"StorageFull",
            r"inline_container\.cc.{0,40}unexpected pos", r"PytorchStreamWriter failed writing",
            r"insufficient (?:free )?(?:disk|storage) (?:space|capacity)", r"no free space", r"out of disk space",
            r"ran out of (?:disk )?space", r"low on resource: ephemeral-storage",
            r"file ?system .{0,60}(?:is full|100% full)", r"disk space.{0,30}exhausted",
            r"Resource ?exhausted(?:Error)?: (?:/|\w+://)(?!.*open files)", r"fwrite\(.{0,60}incomplete",
            r"\d+ requested and \d+ written",
        ),
    ),
    Rule(
        cause="checkpoint-mismatch", family="config", retry="after-change", role="root",
        meaning="A checkpoint does not fit the model or the parallel layout.",
        advice=(
            "Compare the config of this run with that of the checkpoint: sizes, parallel sizes, names of the "
            "layers."
        ),
        source="PyTorch: load_state_dict; Megatron-LM, DeepSpeed, TensorFlow, Flax and Orbax",
        signs=(
            r"Error\(s\) in loading (?:the )?state_?dict for\b", r"(?:missing|unexpected) key\(?s?\)? in state_dict",
            r"size mismatch for \S+", r"loaded state dict (?:has a different|contains a parameter group)",
            r"(?:Missing|Unexpected) key in checkpoint", r"Size mismatch between saved .{0,200} and current",
            r"(?:value|argument|setting)s? from checkpoint .{0,60}(?:not equal|does not match|differs?|mismatch)",
            r"checkpoint.{0,80}(?:does not|doesn't|do not|don't|did not) (?:match|fit|contain|have)",
            r"(?:not found|missing) in (?:the )?checkpoint\b",
            r"checkpoint.{0,40}(?:shape|size|architecture|version|layout|structure|world.?size) mismatch",
            r"mismatch.{0,40}\bcheckpoint", r"Assign requires shapes of both tensors to match",
            r"Layer count mismatch when loading weights", r"load a weight file containing \d+ layers",
            r"(?:Dict key|tree structure|pytree|PyTree|treedef)s?\b.{0,40}(?:mismatch|\bnot match)",
            r"shapes? .{0,60}(?:in|from|of) (?:the )?checkpoint.{0,60}(?:shape|model|expected)",
            r"\bincompatible\b.{0,40}\bcheckpoint",
            r"was saved with .{0,60}(?:world size|ranks|GPUs|partitions|data parallel|tensor parallel)",
            r"incompatible (?:with the )?(?:checkpoint|state.?dict)",
            r"(?:checkpoint|state.?dict).{0,40}incompatible",
            r"You are trying to load .{0,80}(?:different|incompatible)",
            r"restor(?:e|ing) .{0,80}(?:shape|structure).{0,30}mismatch",
            r"automatic adjustment of (?:DeepSpeed|ZeRO).{0,40}not",
            r"ZeRO.{0,60}world size.{0,60}not (?:currently )?support",
            r"not compatible with the stored shape",
            r"shape in (?:model|variable|shape_and_slice).{0,120}(?:checkpoint|stored)",
            r"Weights? (?:shape|count).{0,40}mismatch", r"Tensor name .{0,120}not found in checkpoint",
            r"Key .{0,120}not found in checkpoint", r"optimizer state.{0,60}(?:mismatch|does not match)",
        ),
    ),
    Rule(
        cause="checkpoint-corrupt", family="storage", retry="after-change", role="root",
        meaning="A checkpoint or another file is truncated or damaged.",
        advice="Go back to the previous complete checkpoint, and delete the damaged one.",
        source="PyTorch: inline_container.cc, pickle; safetensors; HDF5; TensorFlow: DataLossError",
        signs=(
            r"PytorchStreamReader failed", r"failed finding central directory", r"file might be corrupt",
            r"unexpected EOF, expected", r"invalid load key", r"pickle data was truncated",
            r"Error while deserializing header",
            r"(?:Header|Metadata)(?:TooLarge|IncompleteBuffer|TooSmall)|InvalidHeader", r"archive is corrupted",
            r"invalid header or archive", r"\bBadZipFile", r"File is not a zip file", r"file signature not found",
            r"truncated file: eof", r"Unable to open table file",
            rf"(?:checkpoint|weights?|{SHARD}|\.pt|\.pth|\.ckpt|\.safetensors|\.bin|\.distcp)\b.{0,60}(?:is |are |be "
            r"|seems? |appears? |was )(?:to be )?(?:corrupt|truncated|incomplete|damaged|empty)",
            rf"corrupt(?:ed)? (?:checkpoint|weights|model file|{SHARD})",
            r"checksum.{0,40}(?:mismatch|does not match|failed)", r"Ran out of input",
            r"Invalid magic number; corrupt file", r"incomplete metadata, file not fully covered",
            r"No such file or directory: .{0,300}/\.metadata\b",  # DCP writes it last
            r"unpickling stack underflow", r"_pickle\.UnpicklingError",
        ),
    ),
    Rule(
        cause="storage-io", family="storage", retry="now", role="root",
        meaning="The file system did not answer, or failed while reading or writing.",
        advice="Retry once. If it happens again, test the mount on that node.",
        source="Linux: EIO, ESTALE, EROFS, ENOLCK, ETIMEDOUT on files; HDF5 locks; Lustre, NFS and FUSE",
        signs=(
            r"Stale (?:NFS )?file handle", r"^(?!.*\bUCX\b).*Input/output error",
            r"\[Errno (?:5|30|37|107|108|116|121)\]",
            r"\[Errno 1(?:10|12)\] [^:]{0,40}: b?['\"]/", r"Remote I/O error", r"Transport endpoint is not connected",
            r"Cannot send after transport endpoint shutdown", r"No locks available", r"Read-only file system",
            r"unable to lock file", r"\.nfs[0-9a-f]{6,}", r"Structure needs cleaning",
            r"\b(?:EXT4-fs|XFS|BTRFS|Lustre(?:Error)?|LNet(?:Error)?|nfs|beegfs|ceph)\b.{0,80}\b(?:error"
            r"|not responding|timed out|shutdown|corrupt|evict|lost)",
            r"I/O error(?: on|,|:| while)", r"\b(?:Lustre|LNet)Error\b", r"blk_update_request",
            r"\bnvme\d{0,2}\b.{0,40}(?:timeout|reset|abort)", r"\bMedium Error\b", r"database is locked",
            r"failed to (?:write|read|flush|sync|open).{0,60}(?:I/O|timed out|stale)",
            r"^(?!.*(?:denied|forbidden|unauthorized|expired))"
            r".*\b(?:S3|GCS|object store|bucket|blob)\b.{0,80}\b(?:SlowDown|503|timed out|InternalError"
            r"|connection reset|failed to (?:read|write|upload|download))",
            r"(?-i:\b(?:ESTALE|EIO|EROFS)\b)", r"mount.{0,60}(?:not responding|disconnected|lost|failed)",
            r"short (?:read|write)\b",
            r"(?:can't|cannot|unable to) (?:synchronously )?(?:open|create|write|flush|close) (?:file|group"
            r"|dataset).{0,60}(?:lock|errno = |write failed|read failed)",
            r"file (?:read|write) failed: time", r"Resource deadlock avoided",
        ),
    ),
)  # fmt: skip
