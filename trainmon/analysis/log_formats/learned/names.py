"""What the name of a number means: a step, a loss, a learning rate, a speed. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from trainmon.analysis.log_formats.learned.numbers import Name


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
    "gs": 7, "gstep": 0, "niter": 3,
}  # fmt: skip
"""Names of counters with their ranks. The lowest rank counts: optimizer steps before batches, batches before frames."""
PLURALS: dict[Name, int] = {("steps",): 6, ("iters",): 6, ("iterations",): 6}
"""Ranks of plurals beside another counter, which may be those of a whole epoch: `epoch 3 steps: 625 batch 195`."""
UPDATES, ITERATIONS, EPISODES = 1, 3, 9
"""Ranks: counters of optimizer steps over the whole run, those that some trainers start again in each epoch, and those
of little help where another number counts."""

BESIDE_A_COUNTER = vocabulary(
    "train training trainer trained global current currently cur completed complete finished done opt optim optimizer "
    "optimization the at in on info debug this learner learning ppo policy model main iter total progress num n "
    "pretrain pretraining finetune finetuning sft rl log print time rollout no number count idx index env overall "
    "timer rank epoch step tot mini # whole communication performed after for local gradient grad i result "
    "results metrics misc runtime"
)
"""Words that may stand before a counter's name. Any other makes it prose: `loaded the checkpoint of step 5000`."""
BEHIND_A_COUNTER = vocabulary("train training num number no id idx index i #")
"""Words that may stand behind a counter's name: `Iter(train)`, `batch_idx`."""
EPOCHS = frozenset(("epoch", "epochs", "ep"))
NOT_THE_EPOCH = vocabulary("per max ppo total num n end of checkpoint loaded loading restored saved saving")

TOTAL_LOSS, PLAIN_LOSS, AVERAGE_LOSS, NAMED_LOSS, LIKE_A_LOSS = range(5)
PLAIN = vocabulary(
    "train training batch lm step reduced current cur this iter iteration mean avg average avr epoch language model "
    "the global last running smoothed smooth now and with raw is was gpt sft total tot overall"
)
"""Words beside `loss` that leave it the loss of training."""
TOTALS = vocabulary("total tot overall")
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
OF_A_BAR = ("#", "#")
ERRORS = vocabulary("rmse mae error err l")
"""What is a loss where the name says that it is training's; L1 and L2 are `l`."""
QUALITY = vocabulary(
    "rew eprewmean acc accu accuracy ppl perplexity reward rewards return score epe mse mae rmse psnr ssim iou miou "
    "dice f1 auc bleu wer cer bpd bpc likelihood err error kimg mll"
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
        or name[:2] == name[-2:] == OF_A_BAR
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
    if not NOT_TRAINING.isdisjoint(name) or not NOT_A_LOSS.isdisjoint(name):
        return None
    if not {"at", "after"}.isdisjoint(name) and (name[-1] in EPOCHS or name[-1] in COUNTERS):
        return None  # the loss after epoch 3
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


# ---- Rates and times -------------------------------------------------------------------------------------------------

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
