"""The numbers of a log line and what the words beside them mean: a step, a loss, a learning rate, a speed. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

# ---- numbers, each with the words that name it -----------------------------------------------------------------------

LONGEST = 16_000
"""Characters of a line that are read: veRL prints 8,000."""
LONGEST_NAME = 120
MOST_NUMBERS = 400

NUMBER = (
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3}){1,6}(?!\d)|\d{1,24}(?:_\d{3}){0,6})(?:\.(?!\.)\d{0,24})?(?:[eE][-+]?\d{1,3})?"
    r"|\.\d{1,24}(?:[eE][-+]?\d{1,3})?|(?:nan|NaN|NAN|inf|Inf|INF|[Ii]nfinity)(?![a-zA-Z0-9]))"
)
NO_NUMBER = (
    r"(?<![\w.])(?:\d{4}[-/]\d\d[-/]\d\d|\d\d?/\d\d?(?:/\d{2,4})?(?=(?:[ ,]|--)\d\d:))"  # a date, its time and zone
    r"(?:[T ,_-]{1,2}\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<![\w.])(?:\d{1,4} days?, )?\d{1,5}:\d\d(?::\d\d){0,3}(?:[.,]\d{1,9})?(?![\w:])"  # 0:08:38
    r"|(?:https?://|(?<![\w.)\]}/])(?:~|\.{1,2})?/(?=[\w.])(?!\s*\d+\b))[^\s'\"|,]{2,400}"  # a URL, a path
    r"|\.(?:py|cc|cpp|cu|c|h):\d{1,6}"  # of a source
    r"|(?<![\w.])(?:0x[0-9a-fA-F]{1,16}|\d{1,3}(?:\.\d{1,3}){3}|\d{1,4}\.\d{1,4}\.\d{1,4}\S{0,20})"  # IP, version
)
TOKEN = re.compile(
    r"(?=[-+.~/\dhnNiI])"  # what a token begins with: any other character is passed four times as fast
    rf"(?:(?P<skipped>{NO_NUMBER})|(?:(?<![\w@^.])(?<![A-Za-z0-9)]-)|(?<=[Ll]oss)(?=\d\.))"  # LightGCN: loss0.545
    rf"(?P<number>{NUMBER})(?P<scale>[KMBGTk](?![A-Za-z]))?)"
)
AFTER = re.compile(
    r"(?:\s?-\s{0,8}(?P<last>\d{1,12})(?=[\],]| is ))?"  # Minibatch[   1- 500, 64.02%]
    r"(?:\s{0,4}(?:/|из\b|(?:completed?\W{1,2}|done\W{1,2}|finished\W{1,2})?\b(?:out )?of\b)\s{0,10}"
    r"(?P<total>(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,3})?[KMk]?)(?!\w|\.\d|/\d))?"  # not 5/6/7
    r"(?:\s{0,2}\((?:[-+\d.eE,\s/%]|nan|inf|z){1,40}\))?"  # an average or a share in brackets: 0.61 (0.92)
    r"(?:\s?(?P<unit>[a-zA-Z]{1,12}(?:/(?:[a-zA-Z]{1,12}|\d{1,3}s)){1,2}|ms|s|secs?|seconds|us|min|it)(?![\w/=:]|\s=\s))?"
    r"(?:\s(?P<behind>(?:avg |average |mean |train )?loss|avg(?=,[^,]{1,24} rate,)|rate(?=,)"
    r"|(?(total)(?:[sS]tep|[iI]ter(?:ation)?|[uU]pdate|[bB]atche)s))"
    r"(?=(?: finished)?\s*(?:[,;|)]|-{3}|$)))?"  # 0.689 avg loss, 100 / 25000 steps
)
DIVIDER = re.compile(
    r"[|,;，{}\t•│┃·\[]|\s-\s|\.\s+(?=[A-Z])|[\])>]:?(?=\s*\w)|:\s+(?=\S)|\s{3,}(?=\w)|=(?=\S)|\b[A-Z]{4,8}:[\w.]{1,60}:"
    r"|\b(?:N/A|n/a|None)\b|[\"']\s+(?=[\w.]{1,40}=)"  # msg="training step" step=100
)
"""What stands between two fields. A name does not reach across it."""
BEHIND = {"avg": "avg loss", "rate": "learning rate"}
"""Darknet: 999: 1.21, 1.34 avg, 0.001 rate, 4.8 seconds"""
ASIDE = re.compile(r"\([a-zA-Z]+(?: [a-zA-Z]+)+\)")
"""Training loss (for one batch) at step 200"""
WRAPPED = re.compile(r"[\s:=]{0,8}\b(?:[a-z]{1,5}\.)?(?:[tT]ensor|[aA]rray|float\d\d)\([\[ ]{0,4}$")
"""loss: tensor(2.31, device='cuda:0'), 'loss': np.float64(2.31)"""
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
WORD = re.compile(r"[a-z]+|#|[^\W\d_a-z]+")
IN_OTHER_LANGUAGES = {
    "step": "训练次数 次训练 已训练 训练步数 步数 步骤 步 스텝 ステップ шаг",
    "iter": "迭代次数 迭代 반복 イテレーション 反復 итерац",
    "global step": "全局步数",
    "batch": "批次 배치 バッチ батч",
    "Epoch": "轮次 轮数 轮 周期 에포크 에폭 エポック эпох época époque",
    "loss": "损失值 损失 손실 로스 損失 ロス потер лосс pérdida kayıp",
    "lr": "学习率 학습률 学習率",
    "train": "训练 훈련 학습 訓練 学習 обуч тренир",
    "val": "验证 검증 検証 валидац",
    "test": "测试 테스트 テスト тест",
    "eval": "评估 평가 評価 оценк",
    "avg": "平均 평균 средн",
    "current": "当前",
    "total": "总",
    "accuracy": "准确率 精度 정확도 точност",
    "error": "误差 誤差 오차 ошибк erro",
}
"""Words of training in Chinese, Korean, Japanese, Russian (their stems) and Spanish."""
ENGLISH = {word: english for english, words in IN_OTHER_LANGUAGES.items() for word in words.split()}
FOREIGN = "|".join(word + "[а-яё]{0,8}" * ("а" <= word[0] <= "я") for word in sorted(ENGLISH, key=len, reverse=True))
IN_ENGLISH = re.compile(
    rf"(?=[\d第{''.join({word[0] for word in ENGLISH})}])"  # fails fast elsewhere
    r"(?:(?:第\s{0,3}(?P<count>\d{1,12}(?:\s?/\s?\d{1,12})?)\s{0,3}(?:个|次(?!训练))?"
    r"|(?<![\d.])(?P<nth>\d{1,12})(?=번째|\s?\w{1,8}目|[步轮][，,：:])(?:번째)?)\s?)?"
    rf"(?P<of>{FOREIGN})(?:目|의)?",
    re.IGNORECASE,
)
"""`第 3 轮`, `3번째 스텝의`, `3エポック目`, or a word alone."""
SCALES = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}

Name = tuple[str, ...]
"""The words of a name in lower case, without digits: `train/CrossEntropyLoss` is train, cross, entropy, loss."""


class Number(NamedTuple):
    """One number of a line."""

    name: Name
    text: str
    scale: str
    """`K`, `M`, …, or empty."""
    total: str | None
    """What follows a slash or `of`."""
    unit: str
    start: int
    end: int

    @property
    def value(self) -> float:
        return float(self.text.replace(",", "").replace("_", "")) * SCALES[self.scale]

    @property
    def as_count(self) -> int | None:
        """Its value as that of a counter, perhaps printed as `4.000`, `1,200` or `12.1K`; None for any other number."""
        return whole(self.text + self.scale)

    @property
    def total_count(self) -> int | None:
        return whole(self.total)


def whole(text: str | None) -> int | None:
    """Read a whole number of at most 15 digits, perhaps `1,200`, `12.1k` or `1.11e+04`; None for anything else."""
    if text is None or (text.isdecimal() and len(text) <= 15):  # as most are
        return None if text is None else int(text)
    text = text.replace(",", "").replace("_", "").lstrip("+")
    scale = SCALES.get(text[-1:], 1.0)
    if scale > 1 or "e" in text.lower():
        text = f"{float(text.rstrip('KMBGTk')) * scale:f}"
    bare, _, rest = text.partition(".")
    return int(bare) if bare.isdecimal() and len(bare) <= 15 and not rest.strip("0") else None


def in_english(line: str) -> str:
    """The line with the words of training in English: `第 3 轮 损失 0.5` is ` epoch 3  loss 0.5`."""
    return line if line.isascii() else IN_ENGLISH.sub(_translated, line)


def _translated(found: re.Match[str]) -> str:
    word = found["of"].lower()
    english = ENGLISH.get(word) or next(english for stem, english in ENGLISH.items() if word.startswith(stem))
    return f" {english} " + "".join(f"{count} " for count in found.group("count", "nth") if count)


@lru_cache(4096)
def words(label: str) -> Name:
    """The words of a name, without what stands before its last divider; at most six."""
    label = WRAPPED.sub("", ASIDE.sub("", label)).rstrip(" :：=\t'\"[(<>~|")
    return tuple(WORD.findall(CAMEL.sub(" ", DIVIDER.split(label)[-1]).lower()))[-6:]


def numbers(line: str) -> list[Number]:
    """Every number that is no date, time, path, address, estimate (`~12`) or part of a word; at most MOST_NUMBERS."""
    found: list[Number] = []
    name_from = 0
    for token in TOKEN.finditer(line):
        if token.start() < name_from:
            continue
        label, name_from = line[max(name_from, token.start() - LONGEST_NAME) : token.start()], token.end()
        if token["skipped"] is not None or label.endswith("~"):
            continue
        after = AFTER.match(line, token.end())
        assert after is not None  # each of its parts is optional
        name_from = after.end()
        value = (after["last"] or token["number"], token["scale"] or "", after["total"], (after["unit"] or "").lower())
        name = words(BEHIND.get(after["behind"], after["behind"]) or label)
        start = after.start("last") if after["last"] else token.start()
        found.append(Number(name, *value, start, after.end()))
        if len(found) == MOST_NUMBERS:
            break
    return found


# ---- what a name means -----------------------------------------------------------------------------------------------


def vocabulary(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


NOT_TRAINING = vocabulary(
    "val valid validation validate validating vali eval evaluation evaluate evaluating evals test testing dev cv best "
    "predict prediction predicting inference infer sanity holdout heldout early lowest"
)
"""Words of numbers that are of an evaluation, or of the best one."""

COUNTERS = {
    "total timesteps": -1, "global step": 0, "global steps": 0, "globalstep": 0, "num updates": 0, "n updates": 0,
    "nupdates": 0, "train updates": 0, "update": 1, "updates": 1, "up": 1, "step": 2, "steps": 2, "steps taken": 2,
    "iter": 3, "iters": 3, "ite": 3, "iteration": 3, "iterations": 3, "itr": 3, "itrs": 3, "it": 3,
    "batch": 5, "batches": 5, "minibatch": 5, "minibatches": 5, "mb": 5, "ba": 5, "micro step": 5, "microstep": 5,
    "timesteps": 7, "timestep": 7, "env interacts": 7, "instance": 7,
    "#": 7, "s": 8, "round": 9, "episode": 9, "episodes": 9, "pass": 9, "t": 9, "i": 9, "idx": 9,
    "gs": 7, "gstep": 0, "niter": 3, "global": 0,
}  # fmt: skip
"""Names of counters with their ranks. The lowest rank counts: optimizer steps before batches, batches before frames."""
PLURALS: dict[Name, int] = {("steps",): 6, ("iters",): 6, ("iterations",): 6}
"""Ranks of plurals beside another counter, which may be those of a whole epoch: `epoch 3 steps: 625 batch 195`."""
UPDATES, ITERATIONS, EPISODES = 1, 3, 9
"""Ranks: counters of optimizer steps over the whole run, those that some trainers start again in each epoch, and those
of little help where another number counts."""

BESIDE_A_COUNTER = vocabulary(
    "starting train training trainer trained global current currently cur completed complete finished done opt optim "
    "optimizer optimization the at in on info debug this learner learning ppo policy model main iter total progress "
    "num n pretrain pretraining finetune finetuning sft rl log print time rollout no number count idx index env "
    "overall timer rank epoch step tot mini # whole communication performed after for local gradient grad i result "
    "results metrics misc runtime sarsa dqn ddqn a2c a3c sac td3 ddpg trpo"
)
"""Words that may stand before a counter's name. Any other makes it prose: `loaded the checkpoint of step 5000`."""
BEHIND_A_COUNTER = vocabulary("train training num number no id idx index i #")
"""Words that may stand behind a counter's name: `Iter(train)`, `batch_idx`."""
EPOCHS = frozenset(("epoch", "epochs", "ep"))
NOT_THE_EPOCH = vocabulary("per max ppo total num n end of checkpoint loaded loading restored saved saving")

TOTAL_LOSS, PLAIN_LOSS, AVERAGE_LOSS, NAMED_LOSS, LIKE_A_LOSS = range(5)
PLAIN = vocabulary(
    "train training batch lm step reduced current cur this iter iteration mean avg average avr epoch language model "
    "the global last running smoothed smooth now and with raw is was gpt sft total tot overall all"
)
"""Words beside `loss` that leave it the loss of training."""
TOTALS = vocabulary("total tot overall all")
AVERAGES = vocabulary("mean avg avr average running smoothed smooth epoch")
NOT_A_LOSS = vocabulary(
    "scale scales scaler weight coef coefficient scaling ratio lr time grad norm improved decreased spike count diff "
    "delta min max previous prev approxkl clipfrac recorded packet"
)
OTHER_LOSSES = vocabulary("nll xent ce objective elbo bce mse cost objf learn le")
"""Names of losses that do not contain the word; VSE++ calls it Le."""
PARTS = vocabulary(
    "recon reconstruction rec kl kld kldiv reg aux adv commit vq perceptual lpips cls box obj dfl giou mask bbox ctc "
    "att policy value entropy critic actor content style tv cycle"
)
"""Names of numbers beside which a bare `total` is their sum: the loss."""
ERRORS = vocabulary("rmse mae error err l")
"""What is a loss where the name says that it is training's; L1 and L2 are `l`."""
QUALITY = vocabulary(
    "rew eprewmean acc accu accuracy ppl perplexity reward rewards return score epe mse mae rmse psnr ssim iou miou "
    "dice f1 auc correct bleu wer cer bpd bpc likelihood err error kimg mll"
)
"""What training is to improve, and StyleGAN's thousands of images. A counter that grows beside one needs no loss."""
OF_A_GAN = vocabulary("gan real fake a b")
"""Words behind G or D: CycleGAN's losses are called G_GAN, D_real, D_A."""


@lru_cache(4096)
def counter(name: Name) -> int | None:
    """The rank of the counter that has this name; None for what is no counter of training."""
    if (
        not name
        or not NOT_TRAINING.isdisjoint(name)
        or {"total", "optimization"}.issubset(name)
        or name[:2] == name[-2:] == ("#", "#")
        or name[-2:] in (("time", "s"), ("num", "batches"))
    ):
        return None  # `Total optimization steps = 375` is the Hugging Face Trainer's target
    if len(name) > 1 and name[-1] in BEHIND_A_COUNTER:
        return counter(name[:-1])
    if len(name) > 2 and name[-2:] == ("max", "steps"):  # global_step/max_steps
        return counter(name[:-2])
    for length in (2, 1):
        rank = COUNTERS.get(" ".join(name[-length:]))
        if rank is not None:
            beside = [word for word in name[:-length] if not word.startswith(("train", "#")) and word != "of"]
            is_counter = len(beside) < 3 and BESIDE_A_COUNTER.issuperset(beside)
            return (0 if "global" in name else rank) if is_counter else None
    return None


@lru_cache(4096)
def is_target(name: Name) -> bool:
    """Whether it says how many steps there will be: `max_steps`, `total_iters`; but `num_updates` counts."""
    return (
        len(name) > 1
        and COUNTERS.get(name[-1], 9) <= COUNTERS["batches"]
        and name[-2] in ("max", "total", "num")
        and " ".join(name[-2:]) not in COUNTERS
    )


@lru_cache(4096)
def is_epoch(name: Name) -> bool:
    """Whether it is the number of the epoch."""
    if len(name) > 1 and name[-1] in BEHIND_A_COUNTER:
        return is_epoch(name[:-1])
    return name[-1:] != () and name[-1] in EPOCHS and (NOT_TRAINING | NOT_THE_EPOCH).isdisjoint(name)


@lru_cache(4096)
def loss(name: Name) -> int | None:
    """Which loss it is: the total, the plain one, an average, one of several, another; None for what is no loss."""
    is_a_counter = not {"at", "after"}.isdisjoint(name) and name[-1] in {*EPOCHS, *COUNTERS}  # the loss after epoch 3
    if is_a_counter or not (NOT_TRAINING | NOT_A_LOSS).isdisjoint(name):
        return None
    word = next((word for word in name if "loss" in word and word != "lossless"), None)
    if word is None:
        # `initial cost`, `final cost` are a solver's
        is_other = {"initial", "final"}.isdisjoint(name[:-1]) and (
            not OTHER_LOSSES.isdisjoint(name[-1:])
            or name[-2:] in (("cross", "entropy"), ("objective", "function"))
            or name[-3:] in (("neg", "log", "lik"), ("negative", "log", "likelihood"))
        )
        is_error = not ERRORS.isdisjoint(name) and not {"train", "training", "trn"}.isdisjoint(name)
        is_basicsr = len(name) in (2, 3) and name[0] == "l" and name[1] != "r"  # l_pix, l_g_gan
        is_of_a_gan = len(name) == 2 and name[0] in ("g", "d") and name[1] in OF_A_GAN
        is_of_a_gan |= name in (("err", "g"), ("err", "d"))
        if is_other and len(name) == 1:  # nll: 6.0, mu_loss: 0.8
            return NAMED_LOSS
        return LIKE_A_LOSS if is_other or is_error or is_basicsr or is_of_a_gan else None
    rest = [other for other in name if other != word]
    if word == "totalloss" or (not TOTALS.isdisjoint(rest) and PLAIN.issuperset(rest)):
        return TOTAL_LOSS
    if word in ("loss", "losses", "trainloss") and PLAIN.issuperset(rest):
        return PLAIN_LOSS if AVERAGES.isdisjoint(rest) else AVERAGE_LOSS
    return NAMED_LOSS


def is_quality(name: Name) -> bool:
    """Whether it says how good the model is by now, in training: an accuracy, a reward."""
    return not QUALITY.isdisjoint(name) and NOT_TRAINING.isdisjoint(name)


LEARNING_RATE = re.compile(r"\blrs?\b|\blrate\b|\blearning ?rate|^l r$")
NOT_LEARNING_RATE = vocabulary("scheduler mult multiplier time decay lrm")
GRAD_NORM = re.compile(r"\bgrad(?:ient)?s? norm|\bg ?(?:rad)?norm\b|^norm$|\bgradnorm|^grdn$|^grad$")


@lru_cache(4096)
def metric(name: Name) -> str | None:
    """The field of TrainingMetrics for the learning rate, the gradient norm and the loss scale."""
    joined = " ".join(name)
    if LEARNING_RATE.search(joined):
        return "learning_rate" if NOT_LEARNING_RATE.isdisjoint(name) else None
    if GRAD_NORM.search(joined):
        return "grad_norm"
    return "loss_scale" if joined == "loss scale" else None


# ---- rates and times -------------------------------------------------------------------------------------------------

SECONDS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6}
STEP = r"(?:it|iters?|iterations?|steps?|batch|batches|ba|updates?)"
PER_SECOND = r"(?:/| per | )(?:s|secs?|seconds?)$"
STEPS_PER_SECOND = re.compile(rf"\b{STEP}{PER_SECOND}|^ups$")
SECONDS_PER_STEP = re.compile(rf"^(s|secs?|seconds|ms|us)(?:/| per ){STEP}$")
TOKENS_PER_SECOND = re.compile(
    r"\b(?:tok|toks|tokens?|words?)(?: gpu| device|/gpu|/device)?(?:/| per | )(?:s|secs?|seconds?)\b"
    r"|\b[tw]ps$|^(?:real )?tgs\b"
)
SAMPLES_PER_SECOND = re.compile(
    r"\b(?:samples?|imgs?|images?|examples?|seqs?|sequences?|items?|docs?|frames|clips|sentences?|pairs)" + PER_SECOND
)
STEP_TIME = re.compile(
    r"^(?:time|dt|took|seconds|secs?|s b)(?: ms| s| secs?)?$"
    r"|\b(?:step|iter|iteration|batch|it)\b.*\b(?:time|timing|ms|seconds|secs?|duration|dt|avg)\b"
    r"|\btime\b.*\b(?:step|iter|iteration|batch)\b|\b(?:iter|step) dt$"
)
NOT_A_STEP_TIME = vocabulary(
    "total eta data elapsed wall left remaining eval val forward backward generate gather since cumulative load "
    "loading comm compute optimizer save checkpoint wait train"
)


@lru_cache(4096)
def speed(name: Name, unit: str) -> tuple[str, float, bool] | None:
    """For a rate or a step time: its field of TrainingMetrics, the factor to its unit, and whether it is inverted."""
    joined = " ".join(name)
    if joined in ("fps", "fps total"):
        return "samples_per_s", 1.0, False
    for text in (unit, joined):
        if STEPS_PER_SECOND.search(text):
            return "step_time_s", 1.0, True
        if TOKENS_PER_SECOND.search(text):
            return "tokens_per_s", 1.0, False
        if SAMPLES_PER_SECOND.search(text):
            return "samples_per_s", 1.0, False
        period = SECONDS_PER_STEP.search(text)
        if period is not None:
            return "step_time_s", SECONDS[period[1]], False
    if "elapsed time per iteration" in joined or (STEP_TIME.search(joined) and NOT_A_STEP_TIME.isdisjoint(name)):
        return "step_time_s", SECONDS.get(unit, 1e-3 if "ms" in name else 1.0), False
    return ("step_time_s", 1e-3, False) if not name and unit == "ms" else None
