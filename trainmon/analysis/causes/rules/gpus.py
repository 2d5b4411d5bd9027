"""Causes on the GPU and in memory. Pure."""

from trainmon.analysis.causes.sieve import Rule
from trainmon.analysis.gpus import APPLICATION, BREAKING_XIDS

XID = (
    r"\bXid\b(?: \((?:PCI:)?[^)]{{4,20}}\))?(?:[\s:=#(]|errors?|codes?|events?|of|with)*(?:{0})\b(?!:)"
    r"(?!.{{0,120}}\bNon-?fatal\b)(?!.{{0,120}}\bto (?:0x0+ )?\(None\))"
)
"""A driver's line about one of these Xids, but no event that it calls not fatal, or that needs no action."""

GPUS = (
    Rule(
        cause="gpu-hardware", family="hardware", retry="after-node-swap", role="root",
        meaning="A GPU, its memory, NVLink or NVSwitch failed.",
        advice="Exclude the node, start again elsewhere, and report the Xid.",
        source="NVIDIA: Xid errors and their immediate actions; AMD: RAS",
        stated=(
            XID.format("|".join(map(str, BREAKING_XIDS))), r"fallen off the bus", r"rm_?init_?adapter.{0,10}fail",
            r"PCIe Bus Error: severity=Uncorrect\w+ \(Fatal\)",
            r"uncorrectable (?:ECC|NVLink|HBM|DRAM|memory(?! error at)|SRAM)", r"uncorrected ECC",
            r"double[- ]bit (?:ECC )?error", r"(?-i:\bDBE\b)", r"GPU is lost",
            r"\bGPU.{0,40}requires? (?:a )?reset", r"GPU.{0,20}reset required",
            r"\bSXid\b.{0,80}(?<!Non)(?<!Non-)(?<!Non )Fatal", r"Unable to determine the device handle for GPU",
            r"row remap\w* fail",
            r"(?:GSP|NVLink|NVSwitch).{0,60}(?:fatal error|timeout waiting|timed out|RPC timeout)",
            r"ECC (?:page retirement|error).{0,40}(?:fatal|uncorrectable)", r"hipErrorECCNotCorrectable",
            r"cudaErrorECCUncorrectable", r"cudaErrorNvlinkUncorrectable", r"CUDA_ERROR_ECC_UNCORRECTABLE",
            r"cudaErrorHardwareStackError", r"hardware stack error", r"CUDA_ERROR_HARDWARE",
            r"amdgpu.{0,80}(?:ring .{0,20} timeout|GPU reset begin|RAS)", r"Contained .{0,20}(?:ECC )?error",
            r"GPU memory page fault.{0,30}hardware",
        ),
        signs=(
            r"GPU (?:has )?(?:crashed|died|hung|hang)\b", r"GPU\d? .{0,30}(?:is )?missing from",
            r"remapping.{0,30}fail", r"cudaErrorContained", r"peer GPU memory over nvlink or a hardware error",
        ),
        hints=(
            XID.format("63|92|109"), r"\bSXid\b(?!.{0,80}\bNon-? ?fatal)", r"\bECC errors?\b",
            r"\bPCIe Bus Error\b", r"NVRM: .{0,80}(?:error|fail)",
        ),
    ),
    Rule(
        cause="host-oom", family="resources", retry="after-change", role="root",
        meaning="The node or the job ran out of host memory, processes or threads.",
        advice="Ask for more memory, use fewer data-loader workers, or load less at once.",
        source=(
            "Linux: OOM killer; Slurm: oom_kill event; LSF: TERM_MEMLIMIT; Kubernetes: OOMKilled; Python: "
            "MemoryError"
        ),
        stated=(
            r"oom[-_ ]kill(?![-_]?(?:disable|step|=)| +0\b)", r"\boom_reaper\b",
            r"\bv?mem(?:ory)? \S{1,20} exceeded limit",
            r"\bOOMKilled\b", r"out of memory: kill", r"Memory cgroup out of memory", r"invoked oom-killer",
            r"\bTERM_MEMLIMIT\b", r"\bstate\W{1,4}OUT_OF_MEMORY",
            r"exceeded (?:its |the )?(?:step |job |virtual |resident |container )?memory limit",
            r"memory limit.{0,40}(?:exceeded|reached|being killed)",
            r"killed by (?:the )?(?:cgroup )?out-of-memory handler",
            r"(?:killed|terminated|died).{0,60}(?:running |ran )?(?:low on|out of|short of) (?:host |system |node "
            r"|cpu )?memory",
            r"killed by signal: Killed", r"raylet.{0,80}memory usage threshold",
            r"due to the node running low on memory", r"ray-oom-prevention", r"killed due to memory pressure",
            r"Evicted.{0,80}memory", r"low on resource: memory", r"\bOutOfMemoryError: Task was killed",
        ),
        signs=(
            r"(?<!OutOf)MemoryError\b", r"std::bad_alloc", r"Cannot allocate memory", r"\[Errno 12\]",
            r"can't allocate memory", r"not enough memory: you tried to allocate", r"can't start new thread",
            r"pthread_create.{0,20}failed",
            r"(?<!lock file, errno = 11, error message = ')\bResource temporarily unavailable",
            r"unable to allocate .{0,40}(?:array|memory|bytes|[KMGT]i?B)",
            r"(?:system|host|cpu|RAM|host memory)(?!.{0,20}\b(?:CUDA|HIP|GPU)\b).{0,20}out of memory",
            r"out of (?:host|system|CPU) memory",
            r"Unable to allocate internal buffer", r"\bENOMEM\b", r"System unable to allocate necessary resources",
        ),
        hints=(
            r"(?<!sub)(?<!process )\bKilled *$", r"\bline \d+: *\d+ Killed\b", r"\bKilled  +\S", r"\bsignal:? ?9\b",
            r"\bSIGKILL\b(?!_handler)", r"exit ?code ?:? -9\b", r"return code = -9\b", r"potential root causes",
            r"died with <Signals\.SIGKILL",
        ),
    ),
    Rule(
        cause="cuda-oom", family="resources", retry="after-change", role="root",
        meaning="A GPU ran out of memory.",
        advice="Use a smaller batch, more activation checkpointing, or more sharding. The same settings fail again.",
        source=(
            "PyTorch: torch.OutOfMemoryError; XLA and TensorFlow: RESOURCE_EXHAUSTED; cuBLAS and cuDNN: "
            "ALLOC_FAILED"
        ),
        signs=(
            r"(?:CUDA|HIP|XPU|NPU|MPS|ROCm?|GPU|cudaMalloc|Triton|backend)\W{0,4}(?:error|driver error|failure"
            r"|runtime error)?.{0,30}\bout of memory\b",
            r"cuda\.OutOfMemoryError", r"torch\.OutOfMemoryError", r"cudaErrorMemoryAllocation",
            r"CUDA_ERROR_OUT_OF_MEMORY", r"hipErrorOutOfMemory", r"HSA_STATUS_ERROR_OUT_OF_RESOURCES",
            r"(?:CUBLAS|CUDNN|CUFFT|CUSPARSE|CUSOLVER)_STATUS_ALLOC_FAILED",
            r"RESOURCE_EXHAUSTED(?!.*(?:No space|quota|message larger))", r"Resource exhausted: (?!/|\w+://)",
            r"ResourceExhaustedError(?!: (?:/|\w+://))(?!.*(?:No space|quota))", r"OOM when allocating tensor",
            r"failed to allocate .{0,60}(?:device|GPU|CUDA|HBM)",
            r"(?:Ran|Running) out of (?:GPU |device |CUDA )?memory (?:in memory space hbm|while trying to allocate"
            r"|trying to allocate|on (?:the )?(?:GPU|device))",
            r"MPS backend out of memory", r"\bNPU out of memory", r"No available memory for the cache blocks",
            r"less than desired GPU memory utilization", r"memory isn't enough and alloc failed",
            r"larger than the available KV cache memory", r"CUDA memory.{0,30}(?:exhausted|insufficient)",
            r"CUFFT_ALLOC_FAILED", r"not enough (?:GPU|device|CUDA) memory", r"insufficient GPU memory",
            r"Exceeded hbm capacity", r"Used .{0,20} of .{0,20} hbm", r"RMM.{0,60}out_of_memory",
            r"larger than the available KV cache memory", r"\bcudaMalloc\b.{0,40}fail",
        ),
        hints=(
            r"\bout of memory\b",
        ),
    ),
    Rule(
        cause="driver-mismatch", family="config", retry="after-change", role="root",
        meaning="The program, CUDA, the driver and the GPU are incompatible, or no GPU is visible.",
        advice=(
            "Compare the image's CUDA with the node's driver, and check CUDA_VISIBLE_DEVICES. Another node may "
            "work."
        ),
        source="CUDA: errors 35, 100, 101, 209, 222, 802 to 804; PyTorch: CUDA initialization; NVML",
        signs=(
            r"driver version is insufficient", r"NVIDIA driver .{0,60}(?:too old|is not loaded|not found|mismatch)",
            r"Driver/library version mismatch", r"NVRM: API mismatch", r"no kernel image is available",
            r"system not yet initialized", r"unsupported display driver / cuda driver",
            r"forward compatibility was attempted", r"Found no NVIDIA driver", r"No CUDA GPUs are available",
            r"not compiled with CUDA", r"no CUDA-capable device", r"invalid device ordinal", r"CUDA_ERROR_NO_DEVICE",
            r"CUDA_ERROR_(?:INVALID_DEVICE|SYSTEM_)", r"lib(?:cuda|nvidia-ml|amdhip64)\.so[.\d]*: cannot open",
            r"could(?:n't| not) (?:find|load).{0,40}libcuda\.so",
            r"CUDA version .{0,40}(?:mismatch|does not match)", r"CUDA Setup failed",
            r"mismatches the version that was used to compile",
            r"CUDA_HOME (?:environment variable )?(?:is not set|does not exist|is not defined)",
            r"unsupported toolchain", r"provided PTX was compiled", r"unable to find CUDA device",
            r"(?:no|No) ROCm-capable device", r"hipErrorNo(?:BinaryForGpu|Device)",
            r"CUDNN_STATUS_(?:VERSION_MISMATCH|ARCH_MISMATCH|RUNTIME_PREREQUISITE|SUBLIBRARY)",
            r"Loaded runtime CuDNN library", r"device kernel image is invalid",
            r"torch\.cuda\.is_available\(\) is False", r"CUDA is not available",
            r"CUDA (?:GPU )?(?:is )?(?:required|needed) but",
            r"\bno (?:supported |compatible |usable )?(?:NVIDIA |CUDA )?(?:gpu|GPUs|accelerator)s? (?:was |were "
            r"|are |is )?(?:found|detected|visible|available)",
            r"cuda(?:Error)?(?:InsufficientDriver|NoDevice|InvalidDevice|NoKernelImageForDevice"
            r"|UnsupportedPtxVersion|CompatNotSupportedOnDevice|SystemDriverMismatch|SystemNotReady|DevicesUnavailable)\b",
            r"Failed to initialize NVML", r"^No devices were found", r"NVML Shared Library Not Found",
            r"nvidia-smi has failed because it couldn't communicate",
            r"NVMLError_(?:LibraryNotFound|DriverNotLoaded|LibRmVersionMismatch)",
            r"CUDA-capable device(?:s|\(s\))? (?:is/)?are busy or unavailable",
            r"not compatible with the current PyTorch installation",
            r"DNN library (?:is not found|initialization failed)",
            r"only supports? (?:Ampere|Hopper|Volta|Turing|GPUs? with|compute capabilit)",
            r"(?:requires|need|supported) .{0,40}(?:compute capability|Ampere|Hopper)",
            r"Bfloat16 is only supported on GPUs", r"unexpected error from cudaGetDeviceCount",
            r"(?:Cannot|Unable to|Failed to) initialize (?:CUDA|the CUDA)",
            r"Unable to initialize backend '(?:cuda|gpu|rocm|tpu)'(?!.{0,80}libtpu\.so)",
            r"cuInit.{0,60}(?:fail|error|unknown)",
            r"MisconfigurationException: No supported gpu", r"but your machine only has: \[\]",
            r"fabric manager.{0,60}(?:not running|fail|inactive)", r"Install.{0,20}NVIDIA driver",
            r"nvcc fatal.{0,40}Unsupported gpu architecture", r"unsupported gpu architecture", r"cannot find -lcud",
        ),
    ),
    Rule(
        cause="device-assert", family="code", retry="after-change", role="root",
        meaning="A kernel's assertion failed: usually an index or a label is out of range.",
        advice=(
            "Read the assertion line; run once with CUDA_LAUNCH_BLOCKING=1. Check labels against the number of "
            "classes, and token ids against the vocabulary."
        ),
        source="CUDA: error 710, cudaErrorAssert",
        signs=(
            r"device-side assert(?!ions)", r"\.(?:cu|cuh|hip)\b.{0,200}block: \[.{0,80}Assertion",
            r"block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\].{0,40}Assert", r"cudaErrorAssert", r"CUDA_ERROR_ASSERT",
            r"device assert(?:ion)? (?:triggered|failed)",
        ),
    ),
    Rule(
        cause="cuda-illegal-access", family="code", retry="after-change", role="root",
        meaning="A kernel used a bad address.",
        advice=(
            "Run once with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer. If a different rank "
            "fails each time, test the GPUs."
        ),
        source="CUDA: error 700, cudaErrorIllegalAddress; NVIDIA: Xid 13 and 31",
        signs=(
            r"illegal memory access", r"cudaErrorIllegalAddress", r"CUDA_ERROR_ILLEGAL_ADDRESS",
            r"misaligned address", r"Memory access fault by GPU", r"CUDA_ERROR_MISALIGNED",
            r"cudaErrorMisalignedAddress", r"hipErrorIllegalAddress", r"HSA_STATUS_ERROR_MEMORY_(?:APERTURE|FAULT)",
            r"Invalid __(?:global|shared|local)__ (?:read|write)", XID.format("|".join(map(str, APPLICATION))),
        ),
        hints=(
            XID.format(43), r"\bMMU Fault\b",
        ),
    ),
    Rule(
        cause="cuda-error", family="code", retry="after-change", role="root",
        meaning="A CUDA, cuDNN or cuBLAS call failed.",
        advice="Run once with CUDA_LAUNCH_BLOCKING=1. If the same code works on other nodes, test the GPU.",
        source="CUDA runtime: cudaError_t; cuDNN and cuBLAS status codes",
        signs=(
            r"\b(?:CUDNN|CUBLAS|CUFFT|CUSPARSE|CUSOLVER|CURAND|NVRTC|HIPBLAS|MIOPEN)_(?:STATUS"
            r"|ERROR)_?(?!SUCCESS)(?-i:[A-Z_]{4,})\b",
            r"CUDNN error", r"\bcuDNN launch failure",
            r"(?:CUDA|HIP|Triton) (?:runtime |driver |kernel )?(?:error|failure)\b ?[:(=\[]",
            r"Triton Error \[(?:CUDA|HIP)", r"CUDA (?:kernel )?launch fail", r"unspecified launch failure",
            r"CUDA_ERROR_(?!NOT_|OUT_)(?-i:[A-Z_]{4,})\b", r"cudaError(?!_t)(?:[A-Z][A-Za-z]{3,})",
            r"hipError(?!_t)[A-Z][A-Za-z]{3,}", r"CUFFT_(?!SUCCESS)(?-i:[A-Z_]{4,})\b", r"Cuda error (?:in|at|:)",
            r"(?:torch\.)?AcceleratorError", r"\bHSA_STATUS_ERROR_(?-i:[A-Z_]+)\b",
            r"\brt[A-Z]\w+ execute failed(?!.{0,60}time ?out)", r"\bCall to cu[A-Z]\w+ results in\b",
            r"\b(?:accelerator|device|core|TPU)s? halted\b", r"an internal operation failed.{0,30}cu(?:BLAS|DNN)",
            r"Unable to find (?:a valid |an )?(?:cuDNN algorithm|engine) to",
            r"Blas (?:xGEMM|GEMM|SGEMM) launch failed", r"Failed to get convolution algorithm",
            r"cuda runtime error \(\d", r"CUDA driver error", r"gpuAssert\b", r"cublas runtime error",
        ),
        hints=(
            r"TORCH_USE_(?:CUDA|HIP)_DSA", r"\bc10_(?:cuda|hip)_check_implementation\b", r"\bCUDA_LAUNCH_BLOCKING=1",
        ),
    ),
    Rule(
        cause="segfault", family="code", retry="now", role="root",
        meaning="A process crashed in native code.",
        advice="One retry is reasonable. If it crashes again, get a core dump or a stack with faulthandler.",
        source="Linux: signals 4, 7, 8 and 11; glibc: heap checks",
        signs=(
            r"(?:segmentation fault|\bSIGSEGV\b)(?!.{0,60}\bhandler)", r"segfault at [0-9a-f]", r"\bsignal:? ?\(?11\b",
            r"(?:exit(?:ed with)?(?: exit)? ?code ?[:=]?|return code =) ?-(?:4|7|8|11)\b",
            r"\bSIG(?:ILL|BUS)\b(?!.{0,60}\bhandler)", r"illegal instruction", r"Fatal Python error: (?!Aborted)",
            r"double free or corruption", r"free\(\): (?:invalid|double)", r"malloc\(\): ",
            r"corrupted (?:size|double-linked|unsorted)", r"munmap_chunk\(\)", r"stack smashing",
            r"general protection fault", r"Address not mapped", r"Floating point exception", r"Caught segfault",
            r"died with <Signals\.SIGSEGV", r"traps: .{0,80}(?:trap|general protection)",
            r"\bbuffer overflow detected\b",
        ),
        hints=(
            r"core dumped", r"\bSIGABRT\b", r"exitcode ?: -6\b", r"return code = -6\b", r"Fatal Python error",
            r"\bBus error\b", r"terminate called",
        ),
    ),
)  # fmt: skip
