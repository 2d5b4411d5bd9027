"""Causes in the program: its data and numbers, its end as planned, its code and its set-up. Pure."""

from trainmon.analysis.causes.sieve import Rule

OF_ALL = r"^(?!.*(?<!best )(?<!at )(?<!after )\b(?:epoch|stage|phase|fold|round)s?\W{0,3}\d|(?:test|val|eval)\w*\W).*"
"""Before the last words of a trainer: they are not those of an epoch, of a fold or of an evaluation."""

PROGRAM = (
    Rule(
        cause="diverged", family="numerics", retry="after-change", role="root",
        meaning="The loss or the gradients became NaN or infinite and stayed so.",
        advice=(
            "Go back to a checkpoint before it, skip that data, or lower the learning rate. A plain retry "
            "diverges again."
        ),
        source="PyTorch: anomaly mode, GradScaler; DeepSpeed and Apex: loss-scale floor; Megatron-LM: NaN checks",
        signs=(
            r"loss (?:is|became|was|has become|turned|went|=|:) ?(?:equal to |to )?\(?(?:a )?(?:nan|inf|infinite"
            r"|non-?finite|not finite|not a number)\b.{0,60}(?:stop|exit|abort|terminat|halt|rais|break|quit)",
            r"(?:stop|exit|abort|terminat|halt)\w*.{0,40}(?:nan|non-?finite|not finite) (?:loss|grad)",
            r"(?:loss|grad\w*|gradients?|weights?|params?|parameters?|activations?|logits) .{0,40}(?:non-?finite"
            r"|not finite|contains? (?:nan|inf))",
            r"(?:nan|inf) (?:or (?:nan|inf) )?(?:loss|found in|detected|encountered|values? in|gradient"
            r"|in (?:the )?(?:loss|grad|local|output|input tensor))",
            r"(?:found|detected|encountered|got|rejecting) (?:a )?(?:nan|inf|non-?finite)",
            r"loss scale.{0,40}(?:already )?(?:at |reached )?(?:its )?minimum",
            r"reducing loss scale to [\d.]+e-(?:[1-9]\d|\d{3})", r"minimum loss scale",
            r"FloatingPointError", r"returned nan values in its", r"probability tensor contains either",
            r"invalid values:? ?$", r"but found invalid values",
            r"satisfy the constraint .{0,60}(?:Real|Simplex|IndependentConstraint)", r"training (?:has )?diverged",
            r"\bdivergence detected", r"\b(?:loss|gradient|grad[_ ]?norm) spikes?\b.{0,80}\b(?:abort|stop|exit|halt)",
            r"loss (?:has )?(?:diverged|exploded)", r"(?:loss|gradient)s? (?:is |are )?(?:exploding|exploded)",
            r"non-?finite (?:loss|grad)", r"(?:Loss|Model|Training|Run)\b.{0,20}\bdiverged\b",
            r"nan[_ -]?(?:loss|grad)\w*\b(?!\W{1,4}\d).{0,30}(?:error|detected|exceed|stop)",
            r"\bloss\b.{0,40}\b(?:is|was|became) (?:nan|inf\w*)\b.{0,40}\b(?:stop|exit|abort)",
            r"\bnan\b.{0,20}\bstop(?:ping|ped)? (?:the )?training", r"Nan in summary histogram",
            r"(?:Error|Exception)\b.{0,40}\bloss\b.{0,20}\b(?:nan|inf|infinite|not finite)\b",
            r"TerminateOnNaN|Invalid loss, terminating", r"InvalidArgumentError.{0,80}(?:NaN|Inf|check_numerics)",
            r"Tensor had (?:NaN|Inf)", r"NaN or Inf found in input tensor", r"too many (?:nan|skipped|non-?finite)",
            r"input contains (?:NaN|infinity)", r"cannot convert float NaN to integer",
        ),
    ),
    Rule(
        cause="data-error", family="data", retry="never", role="root",
        meaning="A sample or a data file is missing, damaged, or not of the expected form.",
        advice="Find the sample that the message names, then correct or skip it. A retry reads the same data.",
        source="PyTorch: DataLoader; Pillow; Arrow and Hugging Face Datasets; TensorFlow: DataLossError; pandas",
        signs=(
            r"\bArrow(?:Invalid|TypeError|NotImplementedError|IOError|KeyError|CapacityError)",
            r"UnidentifiedImageError|cannot identify image file",
            r"image file is truncated|truncated (?:png|jpeg|image)|broken (?:png|data stream)",
            r"stack expects each tensor to be equal size",
            r"\b(?:JSONDecodeError|UnicodeDecodeError|ParserError|EmptyDataError|DataLossError"
            r"|DatasetGenerationError|DatasetNotFoundError|CastError|ExpectedMoreSplits|NonMatchingSplitsSizesError"
            r"|NonMatchingChecksumError|DataFilesNotFoundError)",
            r"num_samples should be a positive integer", r"Index file doesn't match expected format",
            r"\b(?:bad|invalid|wrong) header\b.{0,80}\.(?:idx|bin|npy|mds|tfrecords?|parquet|arrow)\b",
            r"(?:Dataset|data (?:file|path|dir\w*)|training data|train set|corpus|shard|sample) .{0,80}(?:not found"
            r"|does(?:n't| not) exist|is empty|is corrupt|missing|not exist)",
            r"(?:no|empty|zero|0) (?:training )?(?:samples|images|examples|data files|training data|annotations"
            r"|labels|data)(?: (?:were |was )?(?:found|left|available|loaded))",
            r"(?:corrupt(?:ed)?|invalid|malformed|broken|bad|damaged) (?:sample|record|image|data|jpeg|png|tar"
            r"|tfrecord|row|line|parquet|annotation|label|token|document|shard|utf)",
            r"(?:couldn't|could not|cannot|can't|failed to|unable to|error) (?!open image \S+\.s(?:if|qsh"
            r"|img)\b)(?:read|load|decode|parse|open|reading|loading|decoding|parsing)\w* .{0,40}(?:image|sample"
            r"|record|dataset|data file|audio|video|shard|tfrecord|parquet|\.jpe?g|\.png|\.wav|\.mp4|\.npy|\.tar"
            r"|\.csv|\.jsonl?)",
            r"corrupted record at", r"\bMDB_(?-i:[A-Z_]{4,})\b", r"error:.{0,40}\(-215:Assertion failed\)",
            r"Error (?:opening|decoding) .{0,80}(?:Format not recogni[sz]ed|unknown format)",
            r"LibsndfileError|SoundFileError|\bDecordError|av\.error\.",
            r"(?:label|target|class|token id)s? .{0,30}out of (?:range|bounds)", r"Target \d+ is out of bounds",
            r"Couldn't find .{0,60}(?:dataset|data file)", r"Unable to find .{0,80}(?:dataset|data) ?",
            r"Loading a dataset cached in .{0,40}not supported",
            r"(?:Premature end of JPEG|libpng error|Corrupt JPEG)",
            r"Caught \w*(?:Error|Exception) in DataLoader worker",
            r"(?:expected|got) (?:an? )?(?:image|audio|video)\b.{0,60}unknown format",
            r"Error tokenizing data", r"\btarfile\.\w*Error",
            r"ReadError: (?:unexpected end|not a |bad |invalid|file could)",
            r"Compressed file ended before the end-of-stream", r"\b(?:zlib\.error|LZMAError|BadGzipFile)\b",
            r"Failed to interpret file .{0,120} as a pickle", r"mmap length is greater than file ?size",
            r"buffer size must be a multiple of element size",
            r"(?:Parquet|CRC|Snappy|zlib|gzip|lz4|zstd).{0,30}(?:error|invalid|corrupt|fail)",
            r"\bnot an? (?:valid )?(?:gzip|tar|tfrecord|parquet|jpe?g|png|image|audio|video|wav)\w*\b",
            r"cannot reshape array of size",
            r"Column.{0,60}(?:expected length|not in the dataset|doesn't exist)",
            r"probably activate truncation and/or padding", r"each element in list of batch should be of equal size",
            r"Mismatch(?:ed)? .{0,30}(?:number of|length of) (?:images|samples|labels)",
        ),
    ),
    Rule(
        cause="completed", family="none", retry="never", role="result",
        meaning="The run ended as planned.",
        advice="Nothing to do.",
        source="Exit status 0; the last messages of the trainers",
        signs=(
            r"'train_runtime'|\"train_runtime\"|\btrain_runtime +[=:]",
            OF_ALL + r"\b(?:training|train|fine-?tuning|pre-?training|job|run|experiment|script|optimi[sz]ation|program"
            r"|all (?:\S+ )?(?:epochs|steps|tasks|done|jobs|runs|experiments|trials|folds|seeds))"
            r" (?:is |was |has |has been |have )?(?:now )?(?:successfully )?(?:complete[d]?|finished"
            r"|done|ended|succeeded)\b(?! (?:with (?:error|exit|status|code) ?[1-9]|unsuccess))",
            OF_ALL + r"\b(?:finished|completed?|done|end of) (?:the )?(?:training|train|fine-?tuning|pre-?training"
            r"|all epochs|successfully|fit)\b",
            r"`?Trainer\.fit`? stopped: `?max_(?:epochs|steps|time)", r"exits? successfully",
            OF_ALL + r"\b(?:(?:training|total) (?:took|time)\b.{0,10}"
            r"|total (?:training |train |elapsed |wall |run)?time(?: taken)?\b.{0,20})\d",
            OF_ALL + r"\bsuccessfully (?:completed|finished|exited|trained)", r"exiting program at iteration \d",
            r"final (?:model|checkpoint|weights|results?) .{0,20}(?:saved|written)",
            r"(?:saved|saving|save) (?:the )?final (?:model|checkpoint|weights)",
            r"^(?!.*\b(?:rank|task|worker)s?\b.*exit).*\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]+0\b",
            r"reached (?:the )?(?:max|maximum|target|final|total)(?:imum)? (?:number of )?(?:epochs|steps|iterations)",
            r"\bstate\W{1,4}COMPLETED\b", r"early stopping\b(?!.{0,20}(?:counter|patience))",
            r"\bSignaling Trainer to stop", r"^Restoring model weights from the end of the best epoch",
            r"^(?:done|success)!?\.?$", r"\d+ epochs completed", r"训练(?:已)?(?:完成|结束)",
        ),
        hints=(
            r"\b(?:evaluation|inference|testing) (?:is |was |has been )?(?:complete[d]?|finished|done)\b",
            r"(?:\b|(?<=\btest_))(?:accuracy|acc|f1|f-?score|fscore|auc|score|mAP\d*|bleu|rouge|map|recall|precision|dsc|iou|dice|em"
            r"|test result|final|results?)\b[^a-z]{0,12}(?:tensor)?[^a-z]{0,3}\d",
            r"\bresults? saved\b", r"\b(?:final|results?)(?:\b|_).{0,30}[:=] {0,2}\d", r"Abort COMPLETE",
            r"wandb: (?:Synced|Run summary|Run history|.{0,10}View run|You can sync this run)", r"Optimizer stripped",
            r"\bcleaning up|cleanup\b",
        ),
    ),
    Rule(
        cause="evaluator", family="code", retry="now", role="result",
        meaning=(
            "The training ended or committed a checkpoint; the evaluation, the export or the report after it "
            "failed."
        ),
        advice="Run the evaluator again on the committed checkpoint. The training needs no retry.",
        source="Brooks: Training infrastructure is failure accounting",
    ),
    Rule(
        cause="unknown", family="unknown", retry="unknown", role="generic",
        meaning="No known sign shows why it ended.",
        advice="Look at the whole log, and at what the scheduler or the kernel has recorded.",
        source="No sign was found",
        hints=(r"\bexit(?:ed)?(?: with)?(?: exit)? ?(?:code|status) ?[:=]? ?[1-9]",),
    ),
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
        advice="Read the failed condition in the evidence.",
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
