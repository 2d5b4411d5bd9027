"""What bars, pairs of an epoch and a batch, and counters without a name look like. Pure."""

import re

BAR = re.compile(
    r"(?P<percent>\d{1,3})%\s?(?:\|[^|\r]{0,300}\|)?\s{0,40}(?P<done>[\d,]{1,12})/(?P<of>[\d,]{1,12})\s?\[[\d:]{2,12}<"
)
"""tqdm, also where the blocks were lost."""
ENDLESS_BAR = re.compile(r"(?P<done>\d{1,12})(?P<of>)(?:/\?|it)\s\[[\d:]{4,12}(?:<[\d:?]{1,12})?,")
"""tqdm without a total."""
ROUNDED_BAR = re.compile(r"Progress on:\s?\w{0,40}\s(?P<done>[\d.]{1,9}k?)it/(?P<of>[\d.]{1,9}k?)it\b")
"""jax's tqdm in Levanter and openpi, which rounds thousands: it is no step without a loss."""
ASIDE = re.compile(r"\(epoch[ :=]*[\d.]+\)", re.IGNORECASE)
"""The epoch behind a count of all its steps: `173/446 (epoch 0), train_loss = 2.283`."""
DESCRIPTION = 100
"""Characters before a bar that say what it is of."""
OF_TRAINING = re.compile(
    r"\b(?:train\w*|steps?|progress|iters?|iterations?|epochs?|global.?step|fine-?tun\w*|pre-?train\w*|optimi[sz]\w*"
    r"|updates?)\b",
    re.IGNORECASE,
)
OF_SOMETHING_ELSE = re.compile(
    r"\b(?:val\w*|eval\w*|test\w*|dev|predict\w*|infer\w*|sanity|map|filter|tokeni[sz]\w*|download\w*|load\w*"
    r"|generat\w*|extract\w*|process\w*|preprocess\w*|fetch\w*|request\w*|shards?|comput\w*|cach\w*|split|packing"
    r"|sampl\w*(?! seen)|examples?(?! seen)|saving|convert\w*|upload\w*|read\w*|build\w*|collect\w*"
    r"|running|scor\w*|decod\w*|encod\w*|index\w*|import\w*|warm\w*|captur\w*|compil\w*|merg\w*|writ\w*|prepar\w*"
    r"|pars\w*|files?|dataset|quanti[sz]\w*|calibrat\w*|rollouts?)\b|\.(?:safetensors|bin|parquet|jsonl?|pt|arrow)\b",
    re.IGNORECASE,
)
OF_TESTING = re.compile(r"(?:\b|_)(?:eval|test|valid|infer|predict)", re.IGNORECASE)
PAIR = re.compile(
    r"\b(?:epochs?|train|training|ep)\b(?:\s?\(train\))?[\s:=\[(#]{0,12}(?P<epoch>\d{1,6})"
    r"(?:\s{0,2}(?:/|of)\s{0,2}(?P<epochs>\d{1,6}))?(?:\s?\(\s{0,2}\d{1,3}%\))?"
    r"[\s:,;|\-\])(]{1,12}(?:\d{1,3}%\s?\|[^|\r]{0,200}\||[━╸╺─]{3,200} {0,200})?\s{0,4}"
    r"(?:(?:mini-?batch|batch|step|iter|iters|iteration|it|samples?)\b[\s:=#]{0,6})?[\[(]?\s{0,8}"
    r"(?P<batch>\d{1,9})\s{0,3}(?:/|of)\s{0,8}(?P<batches>\d{1,9})(?![\d.]*[a-zA-Z])",
    re.IGNORECASE,
)
"""`Epoch: [0][21/5005]`, `Train: 3 [ 400/1251 (32%)]`, `epoch 3 | batch 120/391`, `Epoch 3/9 ━━━ 120/391`."""
FROM_ONE = re.compile(
    r"\bEpoch\(train\)|\bTrain Epoch: \d{1,6} \[|\bEpoch {1,4}\d{1,6}, {0,8}\d{1,9}/ {0,8}\d{1,9};"
    r"|\bepoch \d{1,6} - iter \d|\| epoch {1,3}\d{1,6} \| {1,8}\d{1,9}/ ?\d{1,9} batches"
    r"|\bEpoch: (?:0\d{2,5}/\d{3,6}|\d{3,6}/0\d{2,5}) \| Batch \d{3,9}/\d"
    r"|(?<!Train )\b(?:Epoch \[\d{1,6}\]\[|(?i:epoch)[\x22\s:：=]{0,12}[\[(]?\d{1,6} ?/ ?\d{0,5}[0-8]\b)"
)
"""An epoch that counts from 1: `Epoch(train) [3][`, `Epoch [3][`, `Train Epoch: 3 [`, `Epoch 3/100`; OpenNMT's
`Epoch  3,   50/500;`, Flair's `epoch 3 - iter 5/50`, `| epoch   3 |   200/ 2928 batches`,
`Epoch: 097/099 | Batch 0010/0011`.
`3/99` are 100 that count from 0."""
TO_THE_HIGHEST = re.compile(r"[━╸╺─] {1,200}\d{1,9}/\d{1,9} {1,4}[\d:]{4,12} • [\d:-]{4,12} {1,4}[\d.]{1,12}it/s")
"""Lightning's rich bar counts epochs from 0 and shows the highest: `Epoch 4/4 ━━━ 100/100 0:00:09 • 0:00:00 9.5it/s`
is the last of 5."""
BRACKETS = re.compile(
    r"^\W{0,8}\[(?P<epoch>\d{1,6})/(?P<epochs>\d{1,6})(?:\]\s?\[|-)\s{0,6}(?P<batch>\d{1,9})"
    r"(?:/\s{0,6}(?P<batches>\d{1,9}))?\]"
)
"""DCGAN's `[0/25][100/469]`; `[0/25][100]`."""
ESPNET = re.compile(r"\b(?P<epoch>\d{1,6})epoch:train:\d{1,9}-(?P<batch>\d{1,9})batch")
GLUED = re.compile(
    r"\bepoch[_-]?(?P<epoch>\d{1,6})[_-](?:batch|step|iter)[_-]?(?P<batch>\d{1,9})(?=\s|:)", re.IGNORECASE
)
"""`loss of epoch3-batch-50:0.2`, but no file `epoch3-step50.ckpt`."""
COUNT = re.compile(r"\W{0,8}(?P<step>\d{1,9})\s?/\s?(?P<target>\d{1,9})\W{0,8}$")
"""A line with a count and its total only, whose loss may be below it: `[195/200]`."""
COLUMNS = re.compile(r"\bepoch: \d{1,6}(?:, {0,2}-?\d{1,9}\.\d{1,24}){1,40}\s*$", re.IGNORECASE)
"""The values of an epoch without names: `epoch: 0052, 17.5, 0.13`."""
ROUND = re.compile(
    r"\s{0,4}(?:\[(?P<step>\d{1,9})\](?:\t[^\t:]{1,60}:\s?-?\d{1,12}\.[\de+-]{1,24}){1,40}\s*$"
    r"|(?P<count>\d{1,9}) \(\d{1,4}\.\d{1,3}%\)\s{2,40}\d{1,9}(?:\.\d{1,9})? (?:ms|s)\b)"
)
"""A boosting round that may be evaluated only: `[9]\tvalidation_0-auc:0.71`. A count with its share of the run and a
time: `490 (1.63%)    61.377 ms`."""
UNNAMED = re.compile(
    r"(?<!\w)\[\s{0,6}(?:\d{1,6}\s?[,:]\s{1,6})?(?P<step>\d{1,12})(?:\s{0,2}/\s{0,2}(?P<target>\d{1,12}))?(?:\s\|\s[\d.]{1,12})?"
    r"\s?\][\s:|,-]{1,9}(?=[a-zA-Z])"
    r"|^[\s\-=>*]{0,8}(?:(?i:step|iter|iteration|batch|epoch)-|\[\s{0,6}\d{1,6}\]\s{1,9})?(?P<first>\d{1,12})\s{0,4}"
    r"(?:/Unknown\b|(?:\|{1,2}|[:,\t\[)]|[.-]\s)\s{0,8}(?=\[?[a-zA-Z])|:\s{1,4}(?=-?(?:\d|nan,))"
    r"|\(\d{1,9}, \d{1,9}\) (?=\[?[a-zA-Z]))"
    r"|^\s{0,8}(?P<bare>\d{1,9})\s{1,4}(?=-?\d|(?:train\w{0,3} )?loss\b)"
    r"|^[\s\[]{0,6}\(\s{0,4}(?P<braced>\d{1,9})\s{0,4}\)\s{1,4}(?=[a-zA-Z])"
)
"""A counter without a name: `[100] loss=5.1`, `[1,  2000] loss: 2.2`, `10 | loss 9.2`, `10 4.2 s, 9.2 loss`,
`step-10, loss=9.2`, `7/Unknown - 6s - loss: 9.2`, `[ 0]  110 || loss: 9.2` in epoch 0, `[ (4 ) Loss: 9.2`,
`3:  [D loss: 0.5`, `457 (5, 1) [D loss: 0.5`."""
NUMBER = r"-?\d{1,9}(?:\.\d{1,24})?(?:e-?\d\d)?"
LISTED = re.compile(
    rf"\s{{0,8}}\[(?P<loss>{NUMBER}, )?(?:{NUMBER}, ){{0,12}}(?P<step>\d{{1,9}}), "
    r"(?P<rate>0\.0\d{1,24}|\d\.\d{1,24}e-\d\d)\]"
    r"(?=\s*(?:$|\|))"
)
"""VITS's list: perhaps losses, then the step and the learning rate."""
KNOWN_LINES = (
    # Chainer's progress bar: `91300 iter, 7 epoch / 20 epochs`.
    (
        re.compile(r"\s{0,16}(?P<step>\d{1,12}) iter, (?P<epoch>\d{1,6}) epoch / \d{1,12} (?:epoch|iter)"),
        "iteration",
        True,
        True,
    ),
    # The Hugging Face Trainer's bar in a notebook: `[ 22/290 02:50 < 38:04, 0.12 it/s, Epoch 0.36/5]`.
    (
        re.compile(
            r"\s{0,16}\[ {0,6}(?P<step>\d{1,9})/(?P<target>\d{1,9}) [\d:]{4,12}"
            r"(?: < [\d:]{4,12}, [\d.]{1,9} (?:it/s|s/it))?, Epoch [\d.]{1,12}/\d{1,6}\]"
        ),
        "iteration",
        True,
        True,
    ),
    # LightGBM's iteration without a loss of training: `[LightGBM] [Info] Iteration:3, valid_1 auc : 0.78`.
    (re.compile(r"\[LightGBM\] \[Info\] Iteration:(?P<step>\d{1,12}), (?!training)"), "iteration", True, True),
    # TensorFlow's Estimator, whose steps need not be in the log.
    (re.compile(r"\s{0,8}Saving checkpoints for (?P<step>\d{1,12}) into "), "checkpoint", False, True),
    # A time and a rate behind `[3]` need no loss, but two lines.
    (
        re.compile(
            r"\s{0,8}\[(?=\d{1,9}\]\s.*\btime\W{1,3}\d.*\blr\W{1,3}\d)(?P<step>\d{1,12})(?!.*(?:loss|\beval|\btest))",
            re.IGNORECASE,
        ),
        "iteration",
        False,
        True,
    ),
    # build-nanogpt's log.txt: `250 train 3.57`, and what others made of it: `step 250: train 3.57, val 3.61`.
    (
        re.compile(
            r"\s{0,16}(?:(?:step|iter|iteration) )?(?P<step>\d{1,12}):? train(?: |: |=)(?P<loss>\d{1,4}\.\d{1,12})"
            r"(?:,? val(?: |: |=)\d{1,4}\.\d{1,12})?\s*$",
            re.IGNORECASE,
        ),
        "train",
        False,
        False,
    ),
    (COUNT, "n/total", False, False),
)
"""Patterns of whole lines, with what counts there, whether it is named, and whether it is a step without a loss."""
REWRITTEN = (
    # what an average is of: `Mean return (last 100 episodes): 12.1`
    (re.compile(r" ?\((?:over |the )*(?:last|past) \d{1,6}(?: [a-z]{1,12})?\)", re.IGNORECASE), ""),
    # names that are values, as MLPerf's: `"key": "train_loss", "value": 6.91`
    (re.compile(r'"(?:key|name|metric)": "(\w{1,60})", ([^\r]{0,120}?)"value": '), r'\2"\1": '),
    # a counter behind its number: `After 200 iterations, loss = 0.3`, `4th epoch: 0.3`
    (
        re.compile(
            r"(?:^\W{0,8}|\b(?:after|trained|processed|finished|completed)\s)(\d{1,9})(?:-?(?:st|nd|rd|th))?\s"
            r"(?:train(?:ing)?\s)?(epoch|iteration|iter|step|batch|update)(?:e?s\b|\(s\)|\b)(?![\s:=#(]{0,3}\d)",
            re.IGNORECASE,
        ),
        r"\2: \1, ",
    ),
    # `Loss after 200 steps: 0.3`
    (
        re.compile(r"\b(after|at|in) (\d{1,9}) (epoch|iteration|step|batche?)s(?=\s?[:=])", re.IGNORECASE),
        r"\1 \3 \2",
    ),
    # a counter that is joined to its number: `Train step_7360: loss : 3.1`, `ep11, loss: 0.3`
    (
        re.compile(r"(?<![\w/.-])(step|iter|iteration|epoch|ep|batch)[_-]?(?=\d{1,9}[\s:,|\[\])])", re.IGNORECASE),
        r"\1 ",
    ),
    (re.compile(r"(?<=loss)_(?=-\d)", re.IGNORECASE), ": "),
    # whose loss it is: `Train: loss = 0.3`
    (re.compile(r"([Tt]rain(?:ing)?)(?::| -)\s{1,8}(?=[Ll]oss\W)"), r"\1 "),
    # which of several losses it is: `Loss[1]:[0.498]`, `Loss(1): 0.498`, `Loss 1: 0.497`
    (
        re.compile(
            r"(?i:(?<=loss))(?:\[\d{1,3}\]|\(\d{1,3}\)| #?\d{1,3})(?=\s?[:=]{1,2}\s?[\['\"]?(?:[-+]?[\d.]|nan|inf))"
        ),
        "",
    ),
    # what Keras' checkpoint writes behind a bar: `loss: 0.59Epoch 00002: val_loss improved`
    (re.compile(r"(?<=\d)Epoch \d{5}: .{0,400}$"), ""),
    # the lowest, the average and the highest of a batch: `loss min|avg|max: 0.699|0.912| 2.311`
    (re.compile(r"min\|(?:avg|mean)\|max(?=: ?[\d.]{1,12}\|)(?:: ?[\d.]{1,12}\|)"), ": "),
    # the losses of parts: `loss: {'a': 0.1, 'b': 0.2}`
    (re.compile(r"(?<=[Ll]oss)(?:es)?['\"]?: ?\{['\"](?=\w{1,60}['\"]: ?[-\dni])"), "_"),
    # a total of epochs behind a border: `Epoch: [3 | 164]`
    (re.compile(r"(?<=\[)(\d{1,6}) \| (?=\d{1,6}\])"), r"\1/"),
    # the name of the total: `Update/Total: 2700/3958`
    (re.compile(r"(?<=[a-z])/total(?:_\w{1,12})?(?=\s?[:=]\s{0,4}\d{1,9}/\d)", re.IGNORECASE), ""),
    # a name and a value between commas: `Step, 4, Loss, 0.109`
    (re.compile(r"(?:^|(?<=, ))(epoch|step|iter(?:ation)?|\w{0,20}loss\w{0,20}), (?=[-+]?\d)", re.IGNORECASE), r"\1: "),
    # Python 2's tuples: `('epoch:', 21, 'loss:', 0.1)`
    (re.compile(r"['\"] ?(\w[\w ]{0,30}?) ?[:=]? ?['\"], (?=[-+]?\d)"), r"\1: "),
    # Julia's tuples of symbols: `(:epoch, 21, :trn, 0.1)`
    (re.compile(r"(?<=[( ]):(\w{1,30}), (?=[-+]?\d)"), r"\1: "),
    # spaCy's losses by the parts of its pipeline: `{'ner': 12.3}`
    (
        re.compile(r"(?:^|(?<= \| ))\{'(ner|textcat|tagger|parser|spancat|tok\dvec)': (?=[\d.e+-]{1,30}[,}])"),
        r"\1 loss: ",
    ),
    # a verb for the colon: `Epoch is [1/600], mini-batch is [31/1600], batch_loss is 2.2`
    (re.compile(r"(?<=[a-z])(?: (?:is|are)(?= )| ?[为は])(?= ?\[?[-+]?\d)", re.IGNORECASE), ":"),
    # decibels, which are no loss of a GAN
    (re.compile(r"dB(?<=\ddB)\b"), ""),
    # languages that need only our letters, and an E before a count: `E 361/400 PSNR:22.18dB`
    (re.compile(r"^E ?(?=\d{1,6}/\d{1,6} )"), "Epoch "),
    (re.compile(r"[eE](?<!\w[eE])(?i:po(?:ch[ae]|ca|que|k|ka|ha))\b"), "Epoch"),
    (re.compile(r"[iI](?<!\w[iI])(?i:t[eé]ra(?:ci[oó]n|tion|si|zione))\b"), "iteration"),
    (re.compile(r"第 ?(\d{1,9}) ?[个次]? ?(epoch|step|iter(?:ation)?|batch)的?", re.IGNORECASE), r"\2 \1 "),
    (re.compile(r"[vVpP](?<!\w[vVpP])(?i:erlust|erte|erda|erdita)\b"), "loss"),
    # the epoch behind its batch: `30/42 of epoch 2/30`
    (
        re.compile(
            r"(?<!\S)(\d{1,9} ?/ ?\d{1,9}) (?:of|in) (epoch \d{1,6}(?: ?/ ?\d{1,6})?)(?=[\s,]|$)", re.IGNORECASE
        ),
        r"\2 batch \1",
    ),
    # DLLogger's epoch and step: `DLL 2021-03-23 11:48:40.247934 - (0, 136) loss : 2.9`
    (re.compile(r"(?<=\d - )\((\d{1,6}), (\d{1,9})\)(?=\s\w)"), r"epoch \1 step \2"),
    # cuda-convnet's epoch and batch: `3.17... logprob:  0.51, 0.25 (1.2 sec)`
    (re.compile(r"^(\d{1,6})\.(\d{1,9})\.\.\. logprob:"), r"epoch \1 batch \2 loss:"),
    # rows of tables whose heading is far above: WeSpeaker's epoch, batch, rate, margin, loss and accuracy
    (
        re.compile(
            r"^[ -]{0,4}\|\s{1,12}(\d{1,6})\|\s{1,12}(\d{1,9})\|\s{1,12}0\.\d{4,8}\|\s{1,12}0(?:\.\d{1,6})?\|"
            r"(?=\s{1,12}\d{1,4}\.\d{2,6}\|\s{1,12}\d{1,3}\.\d{1,4}\|$)"
        ),
        r"epoch \1 batch \2 loss ",
    ),
    # MATLAB's epoch, iteration, time, accuracies or errors, losses and rate
    (
        re.compile(
            r"^\|\s{1,12}(\d{1,6}) \|\s{1,12}(\d{1,9}) \|\s{1,12}\d\d:\d\d:\d\d \|[^|]{1,20}\|"
            r"(?:[^|]{1,20}\|(?=(?:[^|]{1,20}\|){3}$))?\s{1,12}"
            r"(?=\d{1,6}\.\d{4} \|(?:[^|]{1,20}\|)?\s{1,12}\d\.\d{4}(?:e-\d\d)? \|$)"
        ),
        r"epoch \1 iteration \2 loss ",
    ),
    # YOLO's epoch, memory, losses (the fourth is their total), labels and size of the images, before a bar
    (
        re.compile(
            r"^\s{1,12}(\d{1,6}/\d{1,6})\s{1,12}[\d.]{1,8}[GM](?=(?:\s{1,12}[\d.e-]{1,12}){5,7}:\s)\s{1,12}"
            r"(?:(?:[\d.e-]{1,12}\s{1,12}){3}(?=(?:[\d.e-]{1,12}\s{1,12}){2}\d{1,5}:))?"
        ),
        r"Epoch \1, loss: ",
    ),
    # StyleGAN: `tick 20     kimg 80.0`
    (re.compile(r"^tick (?=\d{1,9} {1,9}kimg \d)"), "iteration "),
    # R's gbm: the tree, the deviances, the step size and the improvement
    (
        re.compile(
            r"^[# ]{0,12}(\d{1,6}) {4,14}"
            r"(?=\d{1,20}\.\d{4} {2,14}-?(?:nan|[\d.]{1,20}) {2,9}\d\.\d{4} {2,9}-?[\d.]{1,20}$)"
        ),
        r"iteration \1 loss ",
    ),
    # PTAN: `15368: done 16 games, mean reward -19.688`
    (re.compile(r"^(\d{1,12}): done (?=\d{1,9} games?, )"), r"step \1, "),
    # the iteration of an epoch before that of all: `Epochiter: 200/1000 || Iter: 3200/250000`
    (
        re.compile(r"\bepoch ?iter: ?\d{1,9}/ ?\d{1,9} ?\|\| (?:totel |total )?iter:? (?=\d)", re.IGNORECASE),
        "global step: ",
    ),
    # `Train loss at epoch 3 step 200: 0.3`
    (
        re.compile(
            r"^(.{0,80}?)\b(?:at|in|for) (epoch \d{1,6}),? (?=(?:step|iter(?:ation)?|batch) \d{1,9}\s?[:=])",
            re.IGNORECASE,
        ),
        r"\2, \1at ",
    ),
    # GANs after the book of Brownlee, with the batch or without: `>12, 3/234, d=0.690`, `>83, c[0.056,98], d[0.02,1.5]`
    (re.compile(r"^>(\d{1,6}), ?(\d{1,9} ?/ ?\d{1,9}) ?, ?(?=\w{1,8} ?[=\[])"), r"epoch \1 - iter \2, "),
    (re.compile(r"^>(\d{1,9}(?: ?/ ?\d{1,9})?) ?, ?(?=\w{1,8} ?[=\[])"), r"step \1, "),
    # a count between borders behind the loss: `batch loss | 0.2000 |    28460 | 5351.3`
    (
        re.compile(r"^([^|\d]{0,40}loss\s{0,12}\|\s{0,12}-?\d{1,9}\.\d{1,24}\s{0,12})\|\s{1,40}(\d{1,9})\s{1,12}\|"),
        r"\2 | \1 |",
    ),
    # a number between dashes: `-----13------`
    (re.compile(r"^-{3,40} ?(\d{1,9}) ?-{3,40}(?=$| \|)"), r"i \1"),
    # DARTS' step, loss and accuracies: `train 200 6.912730e+00 0.107859 0.550956`
    (re.compile(r"^train (\d{1,6}) (?=\d\.\d{6}e[+-]\d\d )"), r"train batch \1 loss "),
    # L-BFGS: `At iterate  200    f=  3.1D-01`
    (re.compile(r"^At iterate {1,8}(\d{1,9}) {1,8}f= {1,8}(-?[\d.]{1,12})D([+-]\d\d)"), r"iteration \1 loss: \2e\3"),
    # the times and the share around a step: `12m 3s (- 48m 12s) (200 20%) 0.30`, `200 20% (0m 12s) 0.30`
    (
        re.compile(
            r"^(?:\d{1,4}m \d\d?s \(- ?\d{1,4}m \d\d?s\) \((\d{1,9}) \d{1,3}%\)"
            r"|(\d{1,9}) \d{1,3}% \(\d{1,4}m \d\d?s\)) (?=\d{1,6}\.\d|[\w -]{0,20}loss)"
        ),
        r"step \1\2, ",
    ),
    (re.compile(r"^(step \d{1,9}), (?=\d{1,6}\.\d)"), r"\1 loss: "),
    # MXNet's epoch: `Iter[0] Batch [50]`
    (re.compile(r"Iter(?=\[\d{1,6}\] {1,4}Batch \[)"), "Epoch"),
)
"""What is written in another way before a line is read. Some begin with a letter, and look behind it for the border of
a word: `re` finds a letter at least twice as fast as `\\b`."""
MEASURED = re.compile(
    r"\b(?:[a-zA-Z][\w./]{0,30} ){0,3}\w[\w./-]{0,60}\s?[:=]\s{0,4}"
    r"(?:[-+]?\d{1,12}\.\d{0,20}(?:e[-+]?\d{1,3})?|nan|inf)\b(?!\s?/)"
)
"""A pair whose value is no count: `val_loss=2.81` beside the training's numbers does not make them an evaluation's."""
NO_TRAINING = re.compile(
    r"^Saving dict for global step|\bNamespace\(|^\W{0,8}(?:args|arguments|config|hparams|hyper-?parameters)\s?[:=]"
    r"|\bosd epoch \d|\btokens: [\d,]{1,12},? cost: \$?\d|\bloss\s{1,4}[\d.]{1,12} ?元",
    re.IGNORECASE,
)
"""What TensorFlow's Estimator writes after an evaluation, settings, Ceph's epochs, the price of tokens, money."""
