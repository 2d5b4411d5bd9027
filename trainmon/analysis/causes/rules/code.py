"""Causes in the program and its set-up. Pure."""

from trainmon.analysis.causes.sieve import Rule

CODE = (
    Rule(
        cause="import-error", family="config", retry="after-change", role="root",
        meaning="A module, a library or a command is missing or has the wrong version.",
        advice="Fix the environment: install the package, or pin the version that the code expects.",
        source="Python: ImportError; the dynamic linker; the shell: 127",
        signs=(
            r"\b(?:ModuleNotFoundError|ImportError)\b", r"No module named", r"cannot import name",
            r"undefined symbol",
            r"(?<!libtpu\.so: )cannot open shared object file", r"error while loading shared libraries",
            r"version [`'](?:GLIBC|GLIBCXX|CXXABI)\S* not found", r"DLL load failed",
            r"(?:command|executable)(?: file)? not found", r"execve\(\).{0,80}No such file",
            r"(?:need|needs|requires?|required) .{0,80}(?:librar(?:y|ies)|package|module"
            r"|dependenc\w+).{0,60}(?:install|not found|was not found|environment)",
            r"(?:is|are|seems? to be) not installed\b",
            r"(?:please|make sure to|run:?|need to|must|you can) `?(?:pip |conda )?install(?:ing)? ",
            r"try:? `?(?:pip|conda) install ",
            r"\b(?:DistributionNotFound|VersionConflict|PackageNotFoundError)\b",
            r"binary incompatibility|numpy\.dtype size changed|compiled using NumPy 1\.x",
            r"No such (?:program|module)", r"module\(s\) are unknown", r"Unable to locate a modulefile",
            r": \d+: \S{1,60}: not found$", r"Could not find (?:a )?module",
            r"Error building extension|Unable to JIT load|Could not build wheels",
            r"(?:failed to find|unable to find|could not find|no working) (?:a |any )?(?:\w+ )?C(?:\+\+)? compiler",
            r"ninja: build stopped|Ninja is required", r"_ARRAY_API not found",
        ),
    ),
    Rule(
        cause="device-mismatch", family="code", retry="after-change", role="root",
        meaning="Tensors of one operation are on different devices.",
        advice="Move the model and the batch to the same device.",
        source="PyTorch: RuntimeError",
        signs=(
            r"Expected all tensors to be on the same device", r"Expected object of device type",
            r"found at least two devices", r"Input type \(.{0,40}\) and weight type \(.{0,40}\) should be the same",
            r"Expected tensor .{0,80}to (?:be on|have) (?:the same )?device",
            r"tensors? (?:are|is) on (?:a )?different device",
            r"can't convert (?:cuda|mps)\S* (?:device type )?tensor to numpy",
            r"must (?:be|all be) on the same (?:device|GPU)",
        ),
    ),
    Rule(
        cause="config-error", family="config", retry="after-change", role="root",
        meaning="The command line or the config is wrong.",
        advice="Correct the setting that the message names.",
        source=(
            "argparse: status 2; click; Hydra and OmegaConf; YAML and JSON; DeepSpeed and Megatron-LM: checks "
            "of the arguments"
        ),
        signs=(
            r"\berror: (?:unrecognized arguments|the following arguments are required|argument |ambiguous option"
            r"|no such option|one of the arguments)",
            r"specified arguments are not used", r"could not open image \S+\.s(?:if|qsh|img)\b(?!.*no such file)",
            r"KeyError: '(?:WORLD_SIZE|RANK|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|SLURM_\w+)'",
            r"No such option|Missing option|Got unexpected extra argument",
            r"(?:unknown|unrecognized|invalid|unexpected|unsupported) (?:argument(?!:)|option|flag|config\w*|setting"
            r"|key|parameter|hyper-?parameter)s?\b(?! .{0,40}\bforward\b)",
            r"\b(?:ConfigAttributeError|ConfigKeyError|ConfigCompositionException|MissingMandatoryValue"
            r"|InterpolationKeyError|MissingConfigException|OverrideParseException|ConfigValueError|ValidationError"
            r"|UnsupportedInterpolationType)\b",
            r"Could not (?:override|append|load config)", r"Error (?:merging|parsing) override", r"is not in struct$",
            r"Missing mandatory value", r"^Available options in '",
            r"(?:yaml|ruamel)\.\S*(?:Error|error)|ScannerError|mapping values are not allowed",
            r"(?:config|configuration|yaml|json|toml)\b.{0,60}(?:not found|does not exist|missing|invalid|malformed"
            r"|could not be|failed to parse|is not a valid)",
            r"(?:train_batch_size|batch[_ ]size|micro[_ -]?batch\w*|world[_ ]size|num\w*heads|hidden[_ ]size"
            r"|global batch\w*|number of (?:GPUs|devices|processes|layers))\b.{0,100}(?:(?:not|be|evenly"
            r"|is) (?:evenly )?divisible|divisible by|not equal to|must be (?:a multiple|equal|greater|at least"
            r"|less)|does not match)",
            r"Check batch related parameters", r"is not a local folder and is not a valid model identifier",
            r"(?:HFValidationError|Repo id must)", r"does not appear to have a file named",
            r"(?:Unable|Failed) to load .{0,40}(?:vocabulary|tokenizer|config|weights)",
            r"Can't load (?:the )?(?:tokenizer|config\w*|model|feature|processor|image processor)",
            r"Duplicate GPU detected",
            r"\b(?:setup|device|GPU|hardware|accelerator)\b.{0,30}(?:doesn't|does not) support (?:bf16|fp16|fp8|tf32)",
            r"(?:environment variable|env var) .{0,60}(?:not set|is required|must be set|missing)",
            r"(?:ambiguous|conflicting|mutually exclusive|incompatible) (?:arguments|options|settings|configuration)",
            r"usage: .{0,80}\[-h", r"(?:requires|required) (?:the )?(?:argument|option|flag|setting) ",
            r"MisconfigurationException", r"requested gpu.{0,60}but your machine only has",
            r"not match the number of (?:visible )?(?:GPUs|devices)", r"invalid (?:choice|value)",
            r"is not a valid (?:choice|option|value|argument|dtype|precision|optimizer|name)",
            r"DeepSpeedConfig(?:Model)?Error|DeepSpeedConfig\b.{0,60}(?:error|invalid)",
            r"(?:Invalid|Unknown|Unsupported) (?:optimizer|model|precision|dtype|backend|strategy|scheduler"
            r"|partition|account|qos|account/partition|generic resource)",
            r"sbatch: error|(?:srun|sbatch|salloc): fatal: |srun: error: Unable to (?:create step|allocate)"
            r"|Requested node configuration is not available|Invalid generic resource",
            r"shell has not been properly configured",
            r"unbound variable|syntax error near unexpected token|bad substitution",
            r"not supported (?:with|when|in|for|by) .{0,40}(?:strategy|config|mode|precision|zero|fsdp|pipeline"
            r"|setting|--)",
        ),
    ),
    Rule(
        cause="permission", family="config", retry="after-change", role="root",
        meaning="The user may not read, write or run a file.",
        advice="Correct the owner or the mode of the path that the message names.",
        source="Linux: EACCES (13), EPERM (1)",
        signs=(
            r"PermissionError", r"(?<!publickey)\bPermission denied(?! \(publickey)",
            r"['\"/]\S*.{0,60}Operation not permitted", r"\[Errno (?:1|13)\]",
        ),
    ),
    Rule(
        cause="missing-file", family="config", retry="after-change", role="root",
        meaning="A file does not exist.",
        advice="Correct the path that the message names, or make sure that the file system is mounted.",
        source="Linux: ENOENT (2); Python: FileNotFoundError",
        signs=(
            r"\b(?:FileNotFoundError|NotADirectoryError|IsADirectoryError|NotFoundError)\b",
            r"No such file or directory", r"\[Errno 2\]",
            r"(?:file|path|directory|folder|checkpoint|mount source) .{0,120}(?:does(?:n't| not) exist|not found"
            r"|cannot be found)",
            r"(?:cannot|can't|could not|couldn't|unable to) (?:find|open|access|locate) (?:the )?(?:file|path"
            r"|checkpoint|director|model)",
        ),
    ),
    Rule(
        cause="assertion", family="code", retry="after-change", role="generic",
        meaning="A check in the program failed.",
        advice="Read the condition that failed; it is in the evidence.",
        source="Python: AssertionError",
        signs=(
            r"^\s*AssertionError\b", r"\bAssertionError$",
        ),
    ),
    Rule(
        cause="python-exception", family="code", retry="after-change", role="generic",
        meaning="An uncaught exception without a more exact cause.",
        advice="Fix the code at the place that the traceback names.",
        source="Python: traceback",
        hints=(
            r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b", r"\bTraceback \(most recent call last\)",
            r"\bRuntimeError:", r"\bfatal error\b",
            r"Uncaught exception",
        ),
    ),
)  # fmt: skip
