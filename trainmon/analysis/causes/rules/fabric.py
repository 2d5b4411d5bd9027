"""Causes in files and file systems, and between processes and services. Pure."""

from trainmon.analysis.causes.sieve import Rule

DATA = r"\.(?:tar|parquet|arrow|tfrecords?|jsonl?|csv|npy|mds|idx|zst)\b"
SHARD = rf"shard(?!.{{0,60}}{DATA})"
"""A shard of a checkpoint, not of the data."""

FABRIC = (
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
        advice="Delete or pack small files; df -i shows the use.",
        source="Linux: ENOSPC with free space; df -i",
        signs=(
            r"(?:out of|no(?: free| more)?|0 free) inodes?\b", r"\binodes? .{0,30}(?:exhausted|full|100%|used up)",
            r"No space left on device.{0,80}inode", r"^(?!\S*loop)\S+ +(\d{3,}) +\1 +0 +100% +/",
        ),
    ),
    Rule(
        cause="dataloader-worker", family="resources", retry="after-change", role="root",
        meaning="A data-loader worker died, usually because /dev/shm is too small, or it gave no data in time.",
        advice=(
            "Give the container more shared memory (--shm-size, --ipc=host), or use fewer workers. After a timeout, "
            "check the storage that holds the data."
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
            "Compare the config of this run with that of the checkpoint: model size, parallel layout, layer "
            "names."
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
            rf"(?:checkpoint|weights?|{SHARD}|\.pt|\.pth|\.ckpt|\.safetensors|\.bin|\.distcp)\b"
            r"(?:(?! dir| folder).){0,60}(?:is |are |be |seems? |appears? |was )(?:to be )?(?:corrupt|truncated"
            r"|incomplete|damaged|empty)",
            rf"corrupt(?:ed)? (?:checkpoint|weights|model file|{SHARD})",
            rf"^(?!.*{DATA}).*(?<![\w/])checksum.{{0,40}}(?:mismatch|does not match|failed)", r"Ran out of input",
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
    Rule(
        cause="rendezvous", family="network", retry="now", role="root",
        meaning=(
            "The processes did not find each other at the start: a port in use, a wrong address, or a missing "
            "rank."
        ),
        advice="Choose a free MASTER_PORT, and check that all ranks start and reach the first node.",
        source="PyTorch: torch.distributed rendezvous and TCPStore; JAX: distributed.initialize",
        signs=(
            r"address already in use", r"EADDRINUSE", r"\bErrno 98\b",
            r"Rendezvous(?:Timeout|Connection|Closed|State|Graceful)?\w*(?:Error|Exit)",
            r"Timed out .{0,40}waiting for clients", r"timed? ?out.{0,80}store[- ]based barrier",
            r"store[- ]based barrier.{0,80}(?:timed? ?out|fail)",
            r"(?:client|server) socket has (?:failed|timed out)",
            r"\bDist(?:Store|Network)Error(?!.{0,40}Failed to recv)",
            r"(?-i:MASTER_ADDR|MASTER_PORT|WORLD_SIZE|\bRANK\b|LOCAL_RANK).{0,60}(?:\bexpected|not set|is missing"
            r"|required|not found in env)",
            r"rendezvous.{0,60}(?:timed out|timeout|failed|closed|refused)", r"connect\(\) timed out",
            r"(?:TCPStore|c10d|store).{0,80}(?:timed out|timeout after|wait timeout)", r"gai error",
            r"failed to connect to .{0,60}(?:master|coordinator|head node|rendezvous|store)",
            r"Failed to connect to (?:the )?(?:coordinator|coordination service|GCS|Ray (?:head|cluster))",
            r"Connect to (?:the )?(?:coordinator|coordination service|GCS|Ray (?:head|cluster)).{0,60}(?:fail"
            r"|timed? ?out|DEADLINE)",
            r"Barrier timed out.{0,160}(?:PjRT_Client_Connect|RegisterTask|connect|init)",
            r"(?:PjRT_Client_Connect|RegisterTask).{0,160}(?:timed out|DEADLINE|UNAVAILABLE)",
            r"(?:timed out|DEADLINE|UNAVAILABLE).{0,160}(?:PjRT_Client_Connect|RegisterTask)",
            r"distributed\.initialize.{0,80}(?:fail|timed out|timeout)",
            r"Port \d+ (?:is )?(?:already )?(?:in use|occupied|unavailable)",
            r"\b(?:bind|listen)\(\).{0,60}\b(?:failed|in use)\b",
            r"\b(?:bind|listen)(?:ing)?\b(?=.{0,60}\b(?:address|port|socket|endpoint)\b).{0,60}\b(?:failed|in use)\b",
            r"No backend type associated with device",
            r"timed out waiting.{0,40}(?:workers|ranks|nodes|peers|processes) to (?:join|connect"
            r"|register|start)",
            r"unable to (?:reach|resolve|connect to).{0,40}(?:master|MASTER_ADDR|head node|rank 0)",
            r"Could not find (?:a )?free port", r"ConnectionRefusedError.{0,60}(?:master|store)",
            r"socketStartConnect.{0,20}never",
        ),
    ),
    Rule(
        cause="nccl-timeout", family="network", retry="now", role="cascade",
        meaning=(
            "A collective timed out, and no rank shows an earlier error: a slow or hung rank, or ranks that run "
            "different collectives."
        ),
        advice=(
            "Retry once. If it happens again, compare the stacks of all ranks (flight recorder), and exclude the node "
            "of the rank that is behind."
        ),
        source="PyTorch: ProcessGroupNCCL watchdog; Gloo",
        signs=(
            r"collective operation timeout", r"NCCL communicator was aborted",
            r"time(?:d )?out waiting for (?:NCCL|RCCL|the collective)", r"\bEI000[26]\b",
            r"\breason=\[[\w ]*time ?out\]", r"Notify register times? ?out",
            r"ran for \d+ milliseconds before timing out", r"Timeout at NCCL work", r"monitoredBarrier",
            r"Watchdog caught", r"watchdog.{0,60}(?:got stuck|timed out|timeout|without making progress)",
            r"Heartbeat monitor timed out",
            r"(?:(?<!ProcessGroup)NCCL|RCCL|HCCL|XCCL|collective|all_?reduce|all_?gather|broadcast"
            r"|barrier)(?! operations have failed).{0,80}(?<!Connection )\btime(?:d)?[- ]?out\b"
            r"(?! ?(?:is |was )?(?:set|(?:to|of|[=:(]) ?\d))",
            r"Timed out waiting \d+ms for (?:recv|send)", r"Timed out waiting for.{0,60}(?:rank|peer|collective)",
            r"\bncclTimeout", r"HorovodInternalError",
            r"Stalled (?:ranks|tensors)", r"\bcollective mismatch", r"Detected mismatch between collectives",
            r"stuck in rendezvous|rendezvous.{0,60}stuck.{0,60}(?:all-?reduce|collective|thunk)",
            r"stuck.{0,40}(?:at|in) (?:a )?(?:rendezvous|collective|all-?reduce)",
            r"Expected \d+ threads to join the rendezvous",
        ),
        hints=(
            r"some NCCL operations have failed", r"flight ?recorder dumps? to finish",
            r"to avoid data inconsistency, we are taking the entire process down",
        ),
    ),
    Rule(
        cause="nccl-network", family="network", retry="after-node-swap", role="cascade",
        meaning="The network between GPUs failed, and no process had died before.",
        advice="Exclude the node that the messages name, and test its InfiniBand or Ethernet port.",
        source="NCCL: ncclSystemError, ncclRemoteError, NET/IB, NET/Socket; UCX; libfabric",
        signs=(
            r"Got completion (?:from|with).{0,60}(?:error|status=[1-9])",
            r"\bibv_\w+.{0,60}(?:fail|error|returned)", r"Call to ibv_",
            r"NET/(?:IB|Socket|OFI|AWS|Libfabric).{0,100}(?:error|fail|refused|closed|timed? ?out|unreachable"
            r"|not found|abort)",
            r"socket\w*Connect.{0,60}(?:fail|refused|timed out|No route|unreachable)",
            r"nccl(?:Remote|System|Internal)Error", r"remote process (?:has )?exit", r"retrieving ncclUniqueId",
            r"possibly due to a network error",
            r"NCCL (?:WARN )?.{0,60}(?:Connection (?:refused|closed|reset)|Net(?:work)? (?:error|is unreachable)"
            r"|No route to host)",
            r"Connection (?:closed|reset) by (?:remote )?peer \[",
            r"gloo.{0,80}(?:Connection closed|reset by peer|connectFullMesh failed)", r"connectFullMesh failed",
            r"(?:unhandled|NCCL).{0,20}system error", r"Bootstrap : no socket interface",
            r"no socket interface found",
            r"Call to (?:connect|recv|send|bind|poll|getsockopt).{0,60}(?:failed|returned)", r"IBV_WC_\w*ERR",
            r"transport retry count(?:er)? exceeded", r"\bUnavailableError\b(?!.*(?:HTTP|libcurl))",
            r"\"os_error\":\"Connection (?:reset|refused)", r"\bfailed to connect to all addresses\b",
            r"\bcollective ops? (?:is|are|was|were) aborted by",
            r"\bmlx5_\w*.{0,80}(?:error|fail|link.?down|Port.{0,10}Down|unplugged|insufficient power|compromis"
            r"|syndrome)",
            r"UCX +(?:ERROR|FATAL)", r"\bucp_\w+.{0,40}(?:fail|error)", r"fi_\w+ failed",
            r"link (?:is )?(?:down|flap\w*)\b", r"local (?:work queue|QP) .{0,30}error",
            r"WC.{0,40}(?:RETRY_EXC|status=[1-9])",
            r"failed with error.{0,40}(?:Connection timed out|Connection refused)", r"(?:N|R|H)CCL (?:error|failure)\b",
            r"\bHccl[A-Z]\w+, error code",
            r"nccl(?:InvalidUsage|UnhandledCudaError|InvalidArgument)", r"(?<!instance of 'c10::)DistBackendError",
            r"peer (?:closed|reset|disconnected)", r"Failed to recv, got 0 bytes", r"Last error:$",
            r"\b(?:MPI|PMIX|PRTE|ORTE)\w*\b.{0,80}(?:connection|network|socket).{0,40}(?:fail|lost|error|closed)",
            r"unhandled cuda error", r"NCCL WARN (?!.{0,120}\bplugin\b).{0,120}(?:fail|error|timed? ?out|abort)",
        ),
        hints=(
            r"\bNo route to host", r"Network is unreachable",
        ),
    ),
    Rule(
        cause="hang", family="code", retry="after-node-swap", role="cascade",
        meaning="No progress for a long time, and no error was logged.",
        advice=(
            "Retry once on other nodes. If it hangs again, look at the stacks of all ranks before you end it: the rank "
            "that differs is the cause."
        ),
        source="Linux: hung tasks; ByteRobust (arXiv 2509.16293)",
        signs=(
            r"\bblocked for more than \d+ seconds", r"soft lockup",
            r"(?:hang|hung|deadlock|stall)(?:ed)? (?:was )?detected",
            r"no (?:progress|heartbeat|output|activity|step)s? (?:was |has been |were |made |for |since "
            r"|in ).{0,40}(?:\d+ ?(?:s|sec|min|h)|seconds|minutes|hours)",
            r"(?:training|process|job|worker|rank|step|trainer) .{0,30}(?:hangs\b|is hung"
            r"|appears? (?:to be )?(?:hung|stuck)|is stuck|seems? (?:to be )?stuck|has stalled|deadlocked)",
            r"not making (?:any )?progress",
            r"\b(?:kernel|collective)\b.{0,40}\bmay (?:hang|be (?:hung|stuck))\b",
            r"rcu_sched.{0,40}stall", r"^Thread \d+ \((?:active|idle)[^)]*\): ",
            r"suspected hang", r"possible deadlock",
            r"One or more tensors were submitted to be reduced.{0,120}subset of ranks", r"missing ranks:",
        ),
        hints=(
            r"\bstuck\b", r"\bhang(?:s|ing)?\b", r"may be (?:hung|stuck)", r"timed out\b",
        ),
    ),
    Rule(
        cause="network-or-auth", family="network", retry="after-change", role="root",
        meaning="A service refused the login or did not answer: W&B, Hugging Face, an object store.",
        advice=(
            "Check the token and its rights (401, 403), or wait for the service (5xx, DNS). An offline mode needs "
            "no service."
        ),
        source="HTTP status codes; W&B: CommError, AuthenticationError; Hugging Face Hub: HfHubHTTPError",
        signs=(
            r"wandb\.(?:sdk\.)?(?:\w+\.)*errors?\.\w*(?:CommError|AuthenticationError|Error)",
            r"\b(?:CommError|AuthenticationError)\b", r"api_key not configured",
            r"\b(?:neptune|comet_ml|mlflow|clearml)\.(?:\w+\.)*\w+Exception",
            r"\b(?:API|access) (?:token|key) (?:is |was )?(?:invalid|expired|revoked|rejected)",
            r"Run initialization (?:has )?timed out", r"Max retries exceeded with url", r"while calling W&B API",
            r"\bConnection error, and we cannot find", r"Failed to establish a new connection",
            r"(?:Temporary failure in|could(?: not|n't)|failed to resolve|unable to resolve).{0,10}(?:name resolution"
            r"|resolve|host)",
            r"(?:nodename nor servname|Name or service not known|getaddrinfo)",
            r"\b(?:401|403|407|429|500|502|503|504) (?:Client|Server) Error",
            r"\bHTTP(?:Error|Exception)?\W{0,3}(?:Error )?(?:401|403|404|429|5\d\d)\b", r"\bHTTPError\b",
            r"\b(?:Gated|Private|Disabled)RepoError|RepositoryNotFoundError|LocalEntryNotFoundError|HfHubHTTPError"
            r"|EntryNotFoundError|RevisionNotFoundError",
            r"gated repo", r"request exceeded the maximum allowed time",
            r"(?:couldn't|could not|can't|cannot|unable to|failed to) (?:connect|reach|log ?in|authenticate"
            r"|load credentials|locate credentials|get credentials)(?: to)?.{0,60}(?:https?:|hugging|hub|wandb"
            r"|server|s3|aws|credential|registry|api|internet)",
            r"(?:requests|urllib3|httpx|aiohttp|httpcore|botocore|google\.api_core|azure)\.\w*\.?\w*(?:Error|Timeout"
            r"|Exception)s?\b",
            r"\b(?:Connect|Read|Connection)Timeout(?:Error)?\b", r"HTTPS?ConnectionPool",
            r"\bSSL(?:CertVerification|EOF|Zero)?Error|CERTIFICATE_VERIFY_FAILED", r"ProxyError", r"urlopen error",
            r"\bURLError\b",
            r"(?:invalid|expired|missing|incorrect|bad|wrong|no).{0,20}(?:api[- _]?key|access token"
            r"|auth(?:entication|orization)? token|credentials|hf token|user token)",
            r"\b(?:unauthorized|not authenticated|authentication (?:failed|required|error)|access denied"
            r"|AccessDenied|permission to access the requested resource)\b",
            r"(?:401|403)\W{1,3}(?:Unauthorized|Forbidden)",
            r"NoCredentialsError|EndpointConnectionError|DefaultCredentialsError|RefreshError|TokenRetrievalError"
            r"|ExpiredToken",
            r"not logged in", r"rate limit(?:ed)?(?: exceeded| reached| hit)?\b|Too ?Many ?Requests|RateLimitError",
            r"Permission denied \(publickey", r"Host key verification failed", r"ImagePullBackOff|ErrImagePull",
            r"error pulling image", r"OfflineModeIsEnabled", r"make sure .{0,40}(?:token|logged in|internet)",
            r"api\.wandb\.ai.{0,80}(?:timed out|refused|error)",
            r"ServiceUnavailable|Service Unavailable|Bad Gateway|Gateway Time-?out",
            r"Connection to .{0,80} timed out\. \(connect timeout", r"\bServerNotFoundError\b",
            r"\bAn error occurred \(\w+\) when calling the \w+ operation\b",
            r"\bexit [1-9]\d* \((?:read|write)\).{0,400}\bpipe:(?:curl|wget|aws|gsutil|gcloud|az)\b",
        ),
        hints=(
            r"wandb: Network error", r"\bwandb: ERROR\b", r"Connection (?:refused|timed out)", r"Retrying \(Retry",
        ),
    ),
)  # fmt: skip
