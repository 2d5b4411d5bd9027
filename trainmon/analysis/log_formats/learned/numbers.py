"""The numbers of a log line, each with the words that name it. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

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
    rf"(?P<skipped>{NO_NUMBER})|(?:(?<![\w@^.])(?<![A-Za-z0-9)]-)|(?<=[Ll]oss)(?=\d\.))"  # LightGCN: loss0.545
    rf"(?P<number>{NUMBER})(?P<scale>[KMBGTk](?![A-Za-z]))?"
)
AFTER = re.compile(
    r"(?:\s?-\s{0,8}(?P<last>\d{1,12})(?=[\],]| is ))?"  # Minibatch[   1- 500, 64.02%]
    r"(?:\s{0,4}(?:/|\bof\b|\bout of\b)\s{0,10}"
    r"(?P<total>(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,3})?[KMk]?)(?!\w|\.\d|/\d))?"  # not 5/6/7
    r"(?:\s{0,2}\((?:[-+\d.eE,\s/%]|nan|inf|z){1,40}\))?"  # an average or a share in brackets: 0.61 (0.92)
    r"(?:\s?(?P<unit>[a-zA-Z]{1,12}(?:/(?:[a-zA-Z]{1,12}|\d{1,3}s)){1,2}|ms|s|secs?|seconds|us|min|it)(?![\w/=:]|\s=\s))?"
    r"(?:\s(?P<behind>(?:avg |average |mean |train )?loss|avg(?=,[^,]{1,24} rate,)|rate(?=,)"
    r"|(?(total)(?:[sS]tep|[iI]ter(?:ation)?|[uU]pdate|[bB]atche)s))"
    r"(?=(?: finished)?\s*(?:[,;|)]|-{3}|$)))?"  # 0.689 avg loss, 100 / 25000 steps
)
DIVIDER = re.compile(
    r"[|,;，{}\t•│┃·\[]|\s-\s|[\])>]:?(?=\s*\w)|:\s+(?=\S)|\s{3,}(?=\w)|=(?=\S)|\b[A-Z]{4,8}:[\w.]{1,60}:"
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
}
"""Words of training in Chinese, Korean, Japanese, Russian (their stems) and Spanish."""
ENGLISH = {word: english for english, words in IN_OTHER_LANGUAGES.items() for word in words.split()}
FOREIGN = "|".join(word + "[а-яё]{0,8}" * ("а" <= word[0] <= "я") for word in sorted(ENGLISH, key=len, reverse=True))
IN_ENGLISH = re.compile(
    rf"(?=[\d第{''.join({word[0] for word in ENGLISH})}])"  # fails fast elsewhere
    r"(?:(?:第\s?(?P<count>\d{1,12}(?:\s?/\s?\d{1,12})?)\s?(?:个|次(?!训练))?"
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
    text = (text or "").replace(",", "").replace("_", "").lstrip("+")
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
