"""Causes in the data and the numbers. Pure."""

from trainmon.analysis.causes.sieve import Rule

DATA = (
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
)  # fmt: skip
