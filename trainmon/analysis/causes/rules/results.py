"""Ends that are no failure of the training. Pure."""

from trainmon.analysis.causes.sieve import Rule

OF_ALL = r"^(?!.*(?<!best )(?<!at )(?<!after )\b(?:epoch|stage|phase|fold|round)s?\W{0,3}\d|(?:test|val|eval)\w*\W).*"
"""Before the last words of a trainer: they are not those of an epoch, of a fold or of an evaluation."""

RESULTS = (
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
        meaning="No known sign explains the end.",
        advice="Look at the whole log, and at what the scheduler or the kernel has recorded.",
        source="No sign was found",
        hints=(r"\bexit(?:ed)?(?: with)?(?: exit)? ?(?:code|status) ?[:=]? ?[1-9]",),
    ),
)  # fmt: skip
