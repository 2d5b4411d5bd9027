"""Causes outside the program: the scheduler, nodes, and people. Pure."""

from trainmon.analysis.causes.sieve import Rule

SCHEDULER = (
    Rule(
        cause="preempted", family="scheduler", retry="now", role="root",
        meaning="The scheduler or the cloud took the nodes away.",
        advice="Resume from the last committed checkpoint. The run itself needs no change.",
        source="Slurm: slurmstepd and sacct; LSF: TERM_PREEMPT; Kubernetes and spot notices",
        stated=(
            r"DUE TO (?:PREEMPTION|QOS)", r"\bTERM_PREEMPT", r"\bstate\W{1,4}PREEMPTED",
            r"(?-i:\bPREEMPTED\b)",
            r"\b(?:job|task|run|instance|node|worker|vm|pod|machine|process|node(?:'s)?)\b.{0,40}\b(?:was|is|being"
            r"|been) (?:pre-?empted|reclaimed)",
            r"\bPre-?empted by\b",
            r"\bspot (?:instance )?(?:interruption|termination|reclaim)", r"\btermination is imminent",
            r"\blame workers? found", r"\breason:? ?Pre-?empted",
            r"Pre-?empting the (?:current )?(?:job|step|run)", r"instance is being reclaimed",
            r"(?:interrupted|terminated|stopped) (?:due to|by|because of) (?:spot|pre-?emption)",
        ),
        hints=(r"\bpre-?emption (?:notice|signal|event|detected|received)",),  # trainers say so of any SIGTERM
    ),
    Rule(
        cause="requeued", family="scheduler", retry="never", role="root",
        meaning="The job was requeued; who did it is unknown.",
        advice="Nothing to do: Slurm starts the job again. If no person requeued it, check whether its script does.",
        source="Slurm: slurmstepd and sacct",
        stated=(r"DUE TO JOB REQUEUE",),
        hints=(r"\brequeu(?:e|ing) (?:the )?job",),
    ),
    Rule(
        cause="time-limit", family="scheduler", retry="now", role="root",
        meaning="The job reached its time limit.",
        advice="Resume from the last committed checkpoint. Ask for more time, or chain jobs.",
        source="Slurm: slurmstepd and sacct; LSF: TERM_RUNLIMIT; PBS: walltime; Kubernetes: DeadlineExceeded",
        stated=(
            r"DUE TO TIME LIMIT", r"\bTERM_RUNLIMIT", r"walltime .{0,40}exceeded", r"\bDeadlineExceeded\b",
            r"reached the end of its (?:time|run) ?limit", r"\bstate\W{1,4}TIMEOUT\b", r"Job has timed out\. Ran",
            r"was active on Job longer than specified deadline", r"job timed out because",
        ),
        signs=(
            r"exceeded .{0,20}\b(?:walltime|wall ?clock|wall time|time limit|run ?time limit)",
            r"(?:time|walltime|wallclock|wall clock|run) limit (?:was |has been )?(?:reached|exceeded|hit)",
            r"\bjob\b.{0,60}(?:exceeded|reached).{0,30}\btime ?limit",
            r"maximum (?:run ?time|execution time|job duration).{0,20}(?:exceeded|reached)",
            r"exceeded the maximum (?:execution|run ?time)", r"timeout: sending signal",
            r"\btrainmon: ended\b.{0,40}: stop: the time limit", r"\bexiting program after [\d.]+ minutes",
        ),
    ),
    Rule(
        cause="node-fail", family="hardware", retry="after-node-swap", role="root",
        meaning="A node went down, was rebooted or lost its connection to the scheduler.",
        advice="Start again without that node, and report it.",
        source="Slurm: slurmctld and sacct; Kubernetes: NodeLost; Open MPI; Ray",
        stated=(
            r"\bjob .{0,40}\(node fail(?:ure|ed)\)",
            r"DUE TO NODE FAILURE", r"\bNODE_FAIL\b", r"\bnode failure on\b", r"\bNode(?:Lost|NotReady|Shutdown)\b",
            r"\bBOOT_FAIL\b", r"something is wrong with the boot of the nodes", r"\bUNCORRECTABLE MEMORY ERROR AT\b",
            r"node\(?s?\)? .{0,60}(?:not responding|is down|went down|was lost|has failed(?! to\b)|unreachable"
            r"|is dead)",
            r"(?:marked dead|died|is dead).{0,60}missed too many heartbeats", r"missed too many heartbeats from it",
            r"ORTE has lost communication with a remote daemon", r"lost contact with (?:the )?node",
            r"Node .{0,60}\bNotReady\b",
            r"(?:aborted|killed|terminated|cancelled) due to (?:a )?node (?:failure|fail|down|reboot)",
            r"the node it was running on (?:failed|died)", r"due to (?:the )?failure of node\b", r"on failed node\b",
            r"(?:Node|Host) .{0,80}(?:unexpectedly rebooted|hardware failure)", r"Machine Check.{0,40}Exception",
            r"mce: \[Hardware Error\]", r"\bEDAC\b.{0,40}\bUE\b", r"because its node (?:has )?(?:died|crashed)",
            r"\bnode has crashed\b", r"worker died.{0,60}node (?:has )?died", r"raylet.{0,60}node.{0,30}(?:has )?died",
        ),
        signs=(
            r"host .{0,60}(?:rebooted|crashed|went down)", r"\bprolog (?:failed|error)",
        ),
        hints=(
            r"stopped sending heartbeats", r"heartbeat timeout", r"Communication connection failure",
            r"Zero Bytes were transmitted or received", r"\banother (?:task|process|worker|rank) (?:has )?died\b",
            r"\b(?:task|process|worker|rank)\b.{0,120}\bhas likely (?:restarted|crashed|died)\b",
        ),
    ),
    Rule(
        cause="kill-switch", family="human", retry="never", role="root",
        meaning="A kill switch of the run was set.",
        advice="Remove the kill switch before the next attempt.",
        source="Megatron-LM and BLOOM: a kill-switch file",
        stated=(
            r"(?<!\bno )\bkill[- _]?switch (?:(?!not? )\S+ ){0,3}(?:found|detected|seen|is set|triggered|activated"
            r"|exists)",
            r"(?:found|detected|detecting) (?:a |the )?kill[- _]?switch", r"exiting .{0,60}kill[- _]?switch",
        ),
        signs=(r"\btrainmon: ended\b.{0,40}: stop: the kill switch",),
    ),
    Rule(
        cause="no-restart", family="scheduler", retry="never", role="root",
        meaning="The launcher decided that a restart cannot help.",
        advice="Do not requeue. Read the launcher's reason in its log.",
        source="NVIDIA nvidia-resiliency-ext: ft_launcher exits with 93",
        stated=(
            r"ft_launcher.{0,120}\b(?:exit(?:ed|ing)?|code|status)\D{0,20}93\b",
            r"(?:do not|must not|should not|will not) be? ?(?:requeue|restart).{0,60}\b93\b",
            r"workload control.{0,60}ShutdownWorkload",
        ),
    ),
    Rule(
        cause="cancelled-by-user", family="human", retry="never", role="root",
        meaning="A person stopped it: Ctrl-C, scancel, or a closed terminal.",
        advice="Nothing to fix. Start it again when you want to.",
        source="Python: KeyboardInterrupt; Slurm: CANCELLED by a uid; LSF: TERM_OWNER",
        signs=(
            r"^\W{0,4}KeyboardInterrupt\b", r"\bKeyboardInterrupt\W{0,3}$", r"Detected KeyboardInterrupt",
            r"keyboard interrupt(?:ion)?\b", r"\bTERM_OWNER\b", r"\bgot signal: (?:1|2)\b",
            r"\bReceived (?:1|2) death signal", r"closing signal SIG(?:HUP|INT)\b",
            r"(?:received|caught).{0,30}\b(?:SIGINT|SIGHUP|signal:? ?2)\b", r"\bSIGINT\b.{0,30}(?:received|caught)",
            r"\bCANCELLED by \d+", r"\bscancel(?:l?ed)? by\b",
            r"(?:cancell?ed|interrupted|aborted|stopped|terminated|killed) (?:manually )?by (?:the )?user",
            r"user (?:requested (?:an? |the )?(?:stop|abort|cancel|exit|quit|shutdown|terminat|interrupt)\w*"
            r"|cancell?ed|interrupted|aborted|stopped)\b",
            r"JOB \d+ ON .{0,200} CANCELLED AT [\dT:-]+ \*\*\*", r"^\^C", r"SignalException.{0,60}signal: (?:1|2)\b",
            r"Ctrl ?[+-]? ?C (?:pressed|detected|received)", r"click\.exceptions\.Abort\b", r"\bCANCELLED BY USER\b",
            r"Hangup$",
        ),
        hints=(
            # A person sends SIGTERM, or a program for one: who, the signal does not say.
            r"\b(?:got|received|caught|handling|by)\b.{0,30}\b(?:SIGTERM|signal:? ?15)\b",
            r"\bsignal:? ?15\b(?! ?\(SIGTERM\) received by PID)", r"^(?:.*\bline \d+: *\d+ )?Terminated(?! at)\b",
            r"\bSIGTERM (?:received|caught)", r"\]Terminated$", r"\bReceived 15 death signal",
            r"killed by signal: Terminated", r"Main process received SIGTERM",
            r"Termination signal.? is detected by the operating",
            r"SIGTERM.{0,40}(?:saving|checkpoint|exiting|shutting down)",
            r"STEP .{0,120} CANCELLED AT [\dT:-]+ \*\*\*", r"Force Terminated job", r"^Aborted!$", r"\bSIGHUP\b",
            r"Job .{0,40}CANCELLED", r"\btrainmon: ended\b.{0,40}: stop: SIG(?!INT|HUP)[A-Z0-9]+",
        ),
    ),
)  # fmt: skip
