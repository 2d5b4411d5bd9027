"""Ends that are no failure of the training. Pure."""

from __future__ import annotations

from trainmon.analysis.causes.rule import Rule

RESULTS = (
    Rule(
        cause="completed", family="none", retry="never", role="result",
        meaning="The run ended as planned.",
        advice="Nothing to do.",
        source="Exit status 0; the last messages of the trainers",
        signs=(
            r"'train_runtime'|\"train_runtime\"|\btrain_runtime +[=:]",
            r"(?:training|train|fine-?tuning|pre-?training|job|run|experiment|script|optimi[sz]ation|program"
            r"|evaluation|inference|testing|all (?:\S+ )?(?:epochs|steps|tasks|done|jobs|runs|experiments|trials"
            r"|folds|seeds)) (?:is |was |has |has been |have )?(?:now )?(?:successfully )?(?:complete[d]?|finished"
            r"|done|ended|succeeded)\b(?! (?:with (?:error|exit|status|code) ?[1-9]|unsuccess))",
            r"(?:finished|completed?|done|end of) (?:the )?(?:training|train|fine-?tuning|pre-?training|all epochs"
            r"|successfully|fit)\b",
            r"`?Trainer\.fit`? stopped: `?max_(?:epochs|steps|time)", r"exits? successfully",
            r"(?:training|train|total)(?:ing)? (?:took|time)\b.{0,10}[:=]? ?\d",
            r"total (?:training |train |elapsed |wall |run)?time(?: taken)?\b.{0,20}\d",
            r"successfully (?:completed|finished|exited|trained)", r"exiting program at iteration \d",
            r"final (?:model|checkpoint|weights|results?) .{0,20}(?:saved|written)",
            r"(?:saved|saving|save) (?:the )?final (?:model|checkpoint|weights)",
            r"^(?!.*\b(?:rank|task|worker)s?\b.*exit).*\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]+0\b",
            r"reached (?:the )?(?:max|maximum|target|final|total)(?:imum)? (?:number of )?(?:epochs|steps|iterations)",
            r"Training completed\. Do not forget to share", r"\bstate\W{1,4}COMPLETED\b",
            r"early stopping\b(?!.{0,20}(?:counter|patience))", r"^(?:done|success)!?\.?$", r"\d+ epochs completed",
            r"Successfully completed\.", r"训练(?:已)?(?:完成|结束)",
            r"best (?:model|checkpoint|epoch|accuracy|val\w*|score|result).{0,60}(?:saved|loaded|is|=|:)",
        ),
        hints=(
            r"100%\|",
            r"^(?!(?!.*\bfinal\b).*(?:checkpoint|ckpt|(?:\b|_)(?:step|epoch|iter\w*)\W{0,2}\d))"
            r".*\b(?:written(?! in\b)|saved?|exported|dumped|saving|wrote) .{0,40}?(?:to|in|as|at)\b",
            r"(?:\b|(?<=\btest_))(?:accuracy|acc|f1|f-?score|fscore|auc|score|mAP\d*|bleu|rouge|map|recall|precision|dsc|iou|dice|em"
            r"|test result|final|best|results?)\b[^a-z]{0,12}(?:tensor)?[^a-z]{0,3}\d",
            r"\bresults? saved\b", r"\b(?:final|best|results?)(?:\b|_).{0,30}[:=] {0,2}\d", r"Abort COMPLETE",
            r"wandb: (?:Synced|Run summary|Run history|.{0,10}View run|You can sync this run)", r"Optimizer stripped",
            r"\bcleaning up|cleanup\b", r"保存(?:到|至|在|成功)",
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
        cause="unknown", family="unknown", retry="unknown", role="result",
        meaning="Nothing that was seen explains the end.",
        advice="Look at the whole log, and at what the scheduler or the kernel has recorded.",
        source="No sign was found",
    ),
)  # fmt: skip
