"""The words of the command line: every command with its help, its arguments and options, and what completes them.

Nothing heavy is imported here, so that `--help` and the shell's completion answer at once. A command imports the module
that does its work when it runs.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from trainmon import __version__
from trainmon.actions.verbs import VERBS, VerbSpec, function

# ---- what may be completed -------------------------------------------------------------------------------------------


def known_hosts(ssh_config: Path | None, config: Path | None) -> Iterator[str]:
    """The hosts of the ssh config, then those of the config if it can be read."""
    from trainmon.config import load_settings
    from trainmon.lib import ConfigError
    from trainmon.transport.ssh.config import known_hosts_by_name

    yield from known_hosts_by_name(ssh_config)
    with suppress(ConfigError):
        for cluster in load_settings(config, ())[0].clusters:
            yield from (*(cluster.nodes or ()), *([cluster.login] if cluster.login else ()))


def _given(context: click.Context, option: str) -> Path | None:
    """The value of an option, before or after the command."""
    found: Path | None = context.params.get(option) or context.find_root().params.get(option)
    return found


def complete_hosts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The hosts of the ssh config and of the config that begin so."""
    names = dict.fromkeys(known_hosts(_given(context, "ssh_config"), _given(context, "config")))
    return [name for name in names if name.startswith(incomplete)]


def _beginning(incomplete: str, *names: str) -> list[str]:
    """The names that begin so. One that a shell would have to quote is not completed: bash does not quote it."""
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete) and shlex.quote(name) == name]


def complete_runs(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The runs of the config and of the newest attempts that begin so."""
    from trainmon.cli.attempts import known_names

    return _beginning(incomplete, *known_names(_given(context, "config"))[0])


def complete_attempts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """`last`, the runs and the newest attempts that begin so."""
    from trainmon.cli.attempts import known_names

    runs, attempts = known_names(_given(context, "config"))
    return _beginning(incomplete, "last", *runs, *attempts)


def complete_rules(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The rules that begin so."""
    from trainmon.alerting.rules import RULES

    return [rule.name for rule in RULES if rule.name.startswith(incomplete)]


def complete_stories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The stories of the demo that begin so."""
    from collectors.demo.stories import STORIES

    return [CompletionItem(name, help=text) for name, text in STORIES.items() if name.startswith(incomplete)]


# ---- arguments and options of several commands -----------------------------------------------------------------------


def read_duration(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option whose value is a duration as the config writes them: 10s, 1m30s.

    Raises:
        click.BadParameter: when the value is not a duration.
    """
    from trainmon.config import InvalidValue, parse_duration

    try:
        return None if value is None else parse_duration(value)
    except InvalidValue as wrong:
        raise click.BadParameter(str(wrong)) from wrong


def _duration(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, callback=read_duration, metavar="DURATION", **attributes)


def _flag(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, is_flag=True, **attributes)


HOSTS = click.Argument(["hosts"], nargs=-1, metavar="[HOST]...", shell_complete=complete_hosts)
"""Hosts as ssh knows them, or Slurm host lists."""
CONFIG = click.Option(
    ["--config"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The config. [default: the first of $TRAINMON_CONFIG, ./trainmon.toml, ~/.config/trainmon-tui/config.toml]",
)
SSH_CONFIG = click.Option(
    ["--ssh-config"],
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Read this file instead of ~/.ssh/config, like ssh -F.",
)
JSON = _flag("--json", "as_json", help="One JSON object.")
BY = click.Option(["--by"], metavar="NAME", help="Your name, as others see it. [default: your user name]")

PROGRAM = "trainmon-tui"
SETTINGS = {"help_option_names": ["-h", "--help"]}


def _command(
    name: str,
    does: str,
    text: str,
    *params: click.Parameter,
    cls: type[click.Command] = click.Command,
    short_help: str | None = None,
) -> click.Command:
    """A command with this help, and these arguments and options in the order of its help. `does`: the function that
    gets them, `module:function`, which is imported when the command runs; it returns the exit status."""

    def callback(**options: Any) -> Any:
        return function(does)(**options)

    return cls(
        name, callback=callback, params=list(params), help=text, short_help=short_help, context_settings=SETTINGS
    )


# ---- the dashboard ---------------------------------------------------------------------------------------------------


class Dashboard(click.Command):
    """The command of the dashboard. Its help also lists the other commands."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        for purpose, commands in GROUPS.items():
            with formatter.section(purpose):
                formatter.write_dl([(one.name or "", one.get_short_help_str(100)) for one in commands])


dashboard = _command(
    "dashboard",
    "trainmon.cli.dashboard:run",
    """Monitor large training runs in one terminal: nodes, GPUs, disks, jobs and logs.

    Without HOSTs and without a config, it watches this machine and your running Slurm jobs. HOSTs are names that ssh
    knows, or Slurm host lists such as gpu-[001-032]. They need no config. If a host has the name of a command, write --
    before it: trainmon-tui -- check

    \b
    Examples:
      trainmon-tui                        # what the config names, or this machine
      trainmon-tui gpu-001 'gpu-[2-4]'    # these hosts, without a config
      trainmon-tui --demo=hang            # a simulated cluster; a run hangs
      trainmon-tui --alerts-only          # the daemon: alerts, no dashboard

    Exit status: 0 you ended it, 2 a usage or config error, 128 + N signal N ended the dashboard; with --once that of
    `trainmon-tui snapshot`.
    """,
    HOSTS,
    CONFIG,
    SSH_CONFIG,
    click.Option(
        ["--demo"],
        is_flag=False,
        flag_value="",
        metavar="[=STORY]",
        shell_complete=complete_stories,
        help="Show a simulated cluster of 16 nodes and its failures. STORY names the failure that comes "
        "first, within 10s: hot, lost, hang and others. --demo=list lists all stories.",
    ),
    _flag("--read-only", help="Refuse every action."),
    _flag(
        "--alerts-only",
        help="Run the alert daemon, without a dashboard. `trainmon-tui service` prints how to keep it running.",
    ),
    _flag(
        "--once",
        help="With --alerts-only: evaluate all rules once, send the notifications, and exit. For cron.",
    ),
    click.Option(
        ["--record"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Record into a new file what the dashboard shows, for `trainmon-tui replay`.",
    ),
    cls=Dashboard,
)
click.version_option(__version__, prog_name="trainmon-tui", message="%(prog)s %(version)s")(dashboard)


# ---- set up ----------------------------------------------------------------------------------------------------------


init = _command(
    "init",
    "trainmon.cli.init:write_config",
    """Write a commented trainmon.toml for HOSTs.

    HOSTs are names of ~/.ssh/config or Slurm host lists. It queries the Slurm of the login host, or of this machine,
    for its nodes and your running jobs. It reads the logs of these jobs, or of your processes on the GPUs of this
    machine, for the W&B run and the checkpoints. If a W&B key is on this machine, it queries W&B for your account. Each
    setting shows whether it was given, found or guessed. Without HOSTs, if nothing is found, it lists the names in
    ~/.ssh/config and asks which to watch.

    \b
    Example:
      trainmon-tui init login1 'gpu-[001-004]'

    Exit status: 0 written, 2 a usage error, or the file is already there.
    """,
    HOSTS,
    click.Option(
        ["--login"],
        metavar="HOST",
        help="The host where shared files are read and Slurm is queried. [default: the first HOST with login, head, "
        "front, submit or access in its name]",
    ),
    click.Option(["--name"], metavar="NAME", default="main", show_default=True, help="The name of the cluster."),
    click.Option(
        ["--output", "--config"],
        type=click.Path(path_type=Path),
        default="trainmon.toml",
        show_default=True,
        metavar="FILE",
        help="The config to write. - prints it.",
    ),
    _flag("--force", help="Replace an existing file."),
    _flag("--offline", help="Do not query Slurm or W&B."),
    SSH_CONFIG,
)


check = _command(
    "check",
    "trainmon.cli.check.command:check_all",
    """Check the config, and test every host, Slurm, Prometheus, path, log, W&B run and channel it names.

    \b
    Examples:
      trainmon-tui check --notify      # also send a test message on every channel
      trainmon-tui check --headless    # can the daemon log in?

    Exit status: 0 no problem, 2 a usage or config error, 3 a problem with a host, Prometheus, Slurm, a path, a log,
    W&B or a channel.
    """,
    HOSTS,
    CONFIG,
    SSH_CONFIG,
    _flag(
        "--headless",
        help="Never prompt, and do not use the SSH agent of this login session: the daemon has neither.",
    ),
    _flag("--notify", help="Send a test notification on every channel, and show the response."),
)


log_format = _command(
    "log-format",
    "trainmon.cli.logs.log_format:show_log_format",
    """Show which values are read from the last lines of a log.

    RUN is a run of the config, FILE is a log file on this machine. Prints the values of each line, the format of the
    step lines, and a [[log_format]] block for the config.

    \b
    Example:
      trainmon-tui log-format video-2b --lines 50

    Exit status: 0 steps were read, 1 no step was read, 2 a usage or config error, 3 the log could not be read.
    """,
    click.Argument(["log"], metavar="RUN|FILE", shell_complete=complete_runs),
    CONFIG,
    SSH_CONFIG,
    click.Option(
        ["--lines", "count"],
        type=click.IntRange(1),
        metavar="N",
        default=20,
        show_default=True,
        help="How many lines to show, at the end of the log.",
    ),
    JSON,
    _duration("--wait", default="10s", show_default=True, help="The maximum wait for the host of a run's log."),
)


rules = _command(
    "rules",
    "trainmon.cli.alerts:show_rules",
    """List the alert rules with the settings of your config, or explain one RULE and all its settings.

    \b
    Example:
      trainmon-tui rules gpu-hot    # what it detects, and its settings

    Exit status: 0 listed, 2 a usage or config error.
    """,
    click.Argument(["rule"], required=False, metavar="[RULE]", shell_complete=complete_rules),
    CONFIG,
    _flag("--json", "as_json", help="A JSON list with one object per rule."),
)


SERVICES = ("systemd", "cron", "slurm", "tmux")


service = _command(
    "service",
    "trainmon.cli.daemon:print_service",
    """Print a systemd unit, crontab lines, a Slurm job script or a tmux command that keeps `--alerts-only` running.

    Its comments explain how to install it.

    \b
    Example:
      trainmon-tui service systemd

    Exit status: 0 printed, 2 a usage or config error.
    """,
    click.Argument(["kind"], type=click.Choice(SERVICES), metavar="|".join(SERVICES)),
    CONFIG,
    SSH_CONFIG,
    short_help="Print a systemd unit, crontab lines, a Slurm job or a tmux command for the daemon.",
)


completion = _command(
    "completion",
    f"{__name__}:print_completion",
    """Print a script that lets a shell complete commands, options, hosts, runs, attempts and rules.

    \b
    Turn it on for bash, zsh or fish:
      echo 'eval "$(trainmon-tui completion bash)"' >> ~/.bashrc
      echo 'eval "$(trainmon-tui completion zsh)"' >> ~/.zshrc
      trainmon-tui completion fish > ~/.config/fish/completions/trainmon-tui.fish

    Exit status: 0 printed, 2 a usage error.
    """,
    click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish"),
)


# ---- in a job --------------------------------------------------------------------------------------------------------


class Unparsed(click.Command):
    """A command whose arguments belong to another program, `--` included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] in (["-h"], ["--help"]):
            return super().parse_args(ctx, args)
        ctx.params["words"] = args
        return []


def run_command(words: list[str]) -> None:
    """Be trainmon-run, or print it."""
    from trainmon import job

    if words == ["--print-script"]:
        click.echo(job.run_script(), nl=False)
        return
    sys.argv[1:] = words
    job.main()


run = _command(
    "run",
    f"{__name__}:run_command",
    """Run COMMAND in a job, unchanged, and record how it ended.

    This is `trainmon-run`; `trainmon-run --help` lists its options. With --print-script, print trainmon-run as one file
    that needs no installation on the cluster.

    \b
    Examples:
      trainmon-tui run -- torchrun train.py
      trainmon-tui run --print-script > trainmon-run

    Exit status: that of COMMAND.
    """,
    click.Argument(["words"], nargs=-1, metavar="-- COMMAND [ARGUMENT]..."),
    cls=Unparsed,
)


def print_hooks() -> None:
    """Print trainmon_hooks.py."""
    from trainmon import job

    click.echo(job.hooks_module(), nl=False)


hooks = _command(
    "hooks",
    f"{__name__}:print_hooks",
    """Print trainmon_hooks.py, a module for your training loop.

    With it, the loop saves and exits when a switch, a signal or the time limit asks for it. It is one file for Python
    3.8 or later. Where trainmon-tui is installed, `import trainmon_hooks` works without the file.

    \b
    Example:
      trainmon-tui hooks > trainmon_hooks.py

    Exit status: 0 printed, 2 a usage error.
    """,
)


# ---- look ------------------------------------------------------------------------------------------------------------


snapshot = _command(
    "snapshot",
    "trainmon.cli.snapshot:print_snapshot",
    """Print the current state of everything that is watched.

    It waits until every host, queue and W&B run has answered or failed, but not longer than --wait. It never asks for a
    password. It does not wait for the `for` of a rule: a pending critical alert counts as critical. A condition that
    only time can prove, such as an idle GPU, counts only when its alert fires.

    \b
    Example:
      trainmon-tui snapshot gpu-001 --json --wait 30s

    Exit status: 0 no critical alert, 1 a critical alert, 2 a usage or config error, 3 a host, a queue or a W&B run is
    late or unreachable.
    """,
    HOSTS,
    CONFIG,
    SSH_CONFIG,
    _flag("--json", "as_json", help="Print one JSON object, in version 1 of its format."),
    _duration("--wait", default="10s", show_default=True, help="The maximum wait for hosts, queues and W&B."),
)


users = _command(
    "users",
    "trainmon.cli.snapshot:print_users",
    """Print who holds GPUs and who uses them, by user and by job, idle holders first.

    GPUS is what Slurm has allocated. On hosts without Slurm, it is the GPUs with a process of that user. A GPU that two
    users share counts for each. IDLE counts the GPUs with a utilization of at most 5%, BUSY those with more; a GPU
    whose utilization is not known is in neither. MEMORY is that of the user's processes, or of the whole GPU if its
    processes are not known. - means not known.

    \b
    Example:
      trainmon-tui users 'gpu-[001-032]' --json

    Exit status: 0 printed, 2 a usage or config error, 3 a host or a queue is late or unreachable.
    """,
    HOSTS,
    CONFIG,
    SSH_CONFIG,
    _flag("--json", "as_json", help="Print one JSON object."),
    _duration("--wait", default="10s", show_default=True, help="The maximum wait for hosts and queues."),
)


ranks = _command(
    "ranks",
    "trainmon.cli.snapshot:print_ranks",
    """Print what the ranks of a run are doing, and which of them holds it up.

    It asks NCCL's RAS service on one of its nodes, twice 15s apart; reads /proc of the processes on all its nodes; and
    reads the dumps of PyTorch's flight recorder. It needs no privilege, and changes nothing.
    docs/explanation/hangs.md explains what each of them can show.

    \b
    Example:
      trainmon-tui ranks video-2b --json

    Exit status: 0 no rank is named, 1 a rank is named, 2 a usage or config error or an unknown run, 3 no source could
    look.
    """,
    click.Argument(["run"], metavar="RUN", shell_complete=complete_runs),
    CONFIG,
    SSH_CONFIG,
    _flag("--json", "as_json", help="Print one JSON object."),
    _duration("--wait", default="10s", show_default=True, help="The maximum wait for hosts and queues."),
)


status = _command(
    "status",
    "trainmon.cli.alerts:show_status",
    """Show which program sends notifications, the health of sources and channels, and open alerts.

    The sender is the alert daemon or a dashboard on this machine. Times are in the time zone of this machine.

    \b
    Example:
      trainmon-tui status --json

    Exit status: 0 no critical alert, 1 a critical alert fires (after `--once` also one that is pending, as for
    `snapshot`), 2 a usage error, 3 no recent check, or the ledger cannot be read.
    """,
    JSON,
)


actions = _command(
    "actions",
    "trainmon.cli.act.run:list_actions",
    """List the actions that were requested on this machine, the newest last.

    \b
    Examples:
      trainmon-tui actions video-2b --since 30d
      trainmon-tui actions 88 --log    # its log before the requeue

    Exit status: 0 listed, 2 a usage error, 3 the ledger cannot be read or has no such log.
    """,
    click.Argument(["subject"], required=False, metavar="[RUN|JOB]"),
    _flag("--json", "as_json", help="A JSON list with one object per action."),
    _flag("--log", "wants_log", help="Print the end of the job log that was saved before the newest action."),
    _duration("--since", default="7d", show_default=True, help="List the actions of the last DURATION."),
)


ATTEMPT_GROUPS = ("reason", "node", "week", "run")


attempts = _command(
    "attempts",
    "trainmon.cli.attempts:list_attempts",
    """List the attempts of the runs, the newest last: why each ended and what it cost.

    An attempt is one start of a run: a Slurm job between two requeues; without Slurm a W&B run, a process or a log.
    `*` marks an attempt that trainmon-tui did not watch from start to end. See docs/reference/ledger.md for the
    columns.

    \b
    Examples:
      trainmon-tui attempts video-2b
      trainmon-tui attempts --since 30d --by reason    # what each cause cost

    Exit status: 0 listed, 2 a usage error or a run without any attempt, 3 the ledger cannot be read.
    """,
    click.Argument(["run"], required=False, metavar="[RUN]", shell_complete=complete_runs),
    _duration("--since", default="7d", show_default=True, help="List the attempts that ran in the last DURATION."),
    click.Option(
        ["--by", "group"],
        type=click.Choice(ATTEMPT_GROUPS),
        metavar="|".join(ATTEMPT_GROUPS),
        help="Count attempts and GPU hours by reason (the cause of the end), node, week or run.",
    ),
    _flag("--json", "as_json", help="A JSON list with one object per attempt, or per group."),
)


explain = _command(
    "explain",
    "trainmon.cli.attempts:explain_attempt",
    """Explain on one page why an attempt ended.

    The page has its timeline, evidence, placement, config, checkpoints and retries, and what is missing.

    ATTEMPT is what `attempts` lists under JOB: 88 is the first start of job 88, 88.1 its second; without a scheduler
    `pid 123` or `log`. It may also be an attempt_id of `attempts --json`. `last` is the attempt that ended last, or
    the newest one where none has ended. RUN is a run or the id of a W&B run, and stands for its last attempt that
    ended.

    \b
    Examples:
      trainmon-tui explain last
      trainmon-tui explain 88.1 --markdown > post-mortem.md

    Exit status: 0 explained, 2 a usage error or an unknown name, 3 the ledger cannot be read or is empty.
    """,
    click.Argument(["words"], nargs=-1, required=True, metavar="ATTEMPT|last|RUN", shell_complete=complete_attempts),
    _flag("--json", "as_json", help="One JSON object; docs/reference/explain.md describes it."),
    _flag("--markdown", "as_markdown", help="A post-mortem in Markdown, to share."),
    CONFIG,
)


REPORT_GROUPS = ("run", "cause", "node", "week")


report = _command(
    "report",
    "trainmon.cli.attempts:print_report",
    """Report where the GPU hours of runs went, and how often they failed.

    Each GPU hour is in one category: queued, starting, productive, lost steps, hung, saving, down, or not known. With
    them come goodput, ETTR, MTTF with its interval, the cost if the config has `gpu_hour_price`, and how often to save.
    What is missing is named, and figures that depend on it are ranges. docs/reference/report.md has the definitions.

    \b
    Examples:
      trainmon-tui report video-2b --since 7d --by node
      trainmon-tui report --markdown > report.md

    Exit status: 0 reported, 2 a usage error or a run without any attempt, 3 the ledger cannot be read.
    """,
    click.Argument(["run"], required=False, metavar="[RUN]", shell_complete=complete_runs),
    _duration("--since", default="30d", show_default=True, help="Report on the last DURATION."),
    click.Option(
        ["--by", "group"],
        type=click.Choice(REPORT_GROUPS),
        metavar="|".join(REPORT_GROUPS),
        help="Add a table by run, cause of the end, node or week. By node, it also has the failures to expect.",
    ),
    _flag("--json", "as_json", help="One JSON object; docs/reference/report.md describes it."),
    _flag("--markdown", "as_markdown", help="A page in Markdown, to share."),
    CONFIG,
)


replay = _command(
    "replay",
    "trainmon.cli.dashboard:replay",
    """Show an incident in the dashboard once more.

    The panes and the alerts are those of that time. The dashboard and the daemon record what they read. Around each
    critical alert, they save 30 minutes before it and 10 minutes after it to the directory `recordings` beside the
    ledger. `trainmon-tui --record FILE` records all until you quit. A replay contacts no host and refuses actions.

    \b
    Examples:
      trainmon-tui replay 2026-11-29T14-02-11Z.trainmon
      trainmon-tui replay --check incident.trainmon

    Exit status: 0 you ended it, or all of it was played, 2 a usage error, 3 it cannot be played, 128 + N signal N ended
    the dashboard.
    """,
    click.Argument(["file"], type=click.Path(path_type=Path), metavar="FILE"),
    _flag("--check", help="Play all of it without a terminal, and print what was in it."),
)


nodes = _command(
    "nodes",
    "trainmon.cli.attempts:list_nodes",
    """Print the history of each node, the worst first.

    A line counts the attempts of 90 days that ended on a node, how many of them had their first error there, and its
    Xids, ECC events, flaps, drains and reboots. `0.2 expected` is the number of first errors of a usual node. A node is
    bad if it is at least 95% certain to fail five times as often as a usual node: docs/explanation/retries.md.

    \b
    Examples:
      trainmon-tui nodes
      trainmon-tui nodes --history

    Exit status: 0 printed, 2 a usage error, 3 the ledger cannot be read.
    """,
    _flag("--history", help="Also print what happened on each node, and when."),
    _flag("--json", "as_json", help="A JSON list with one object per node, with its events."),
)


sql = _command(
    "sql",
    "trainmon.cli.attempts:print_rows",
    """Run one SELECT on the ledger, the SQLite database of what was recorded.

    The table `training_attempts` has the attempts, `evals` the results of evaluators, `gpu_hours` the last hour of the
    GPUs of each attempt. docs/reference/ledger.md lists the columns.

    A query can only read. Its limits are 10s and 10,000 rows. `now() - interval '7 days'` works as in PostgreSQL.

    \b
    Example:
      trainmon-tui sql "SELECT run_id, count(*) FROM training_attempts GROUP BY 1"

    Exit status: 0 done, 2 a usage error, 3 the query is wrong, may not be run, or exceeds a limit.
    """,
    click.Argument(["query"], metavar="QUERY"),
    _flag("--json", "as_json", help="A JSON list with one object per row."),
)


classify = _command(
    "classify",
    "trainmon.cli.logs.classify:classify_logs",
    """Show why training runs ended, from their logs.

    Prints the cause, the lines that show it, what to do, and whether a retry can help. Reads the start and the end of
    each FILE; - is the standard input. If several ranks report errors, the first error is the cause: by the times in
    front of the lines, or by their order. docs/reference/causes.md lists the causes.

    \b
    Examples:
      trainmon-tui classify slurm-88.out
      trainmon-tui classify --together rank-*.log --exit-code 1

    Exit status: 0 each cause was found, 1 a cause is not known, 2 a usage error, 3 a file could not be read.
    """,
    click.Argument(["files"], nargs=-1, required=True, metavar="FILE|-...", type=click.Path()),
    click.Option(["--exit-code"], type=int, metavar="N", help="The exit code of the attempt; -9 means signal 9."),
    click.Option(
        ["--scheduler-state"],
        metavar="STATE",
        help="The state that the scheduler reports at the end, such as PREEMPTED.",
    ),
    _flag("--together", help="The files are of one attempt, such as one for each rank: print one answer."),
    _flag("--json", "as_json", help="One JSON object per line and file, in order."),
)


# ---- act on runs, jobs and nodes -------------------------------------------------------------------------------------

EXITS = """Exit status: 0 done, 1 failed or without the expected effect, 2 a usage or config error,
3 no data, an unknown result, or a result that is still to come after the wait, 4 refused or not confirmed.
A requeue is done when the job runs again. The other actions are done when the command or the file is accepted, and with
--wait when the result is there."""

COMMON = (
    _flag("--read-only", help="Refuse the action, like a read-only dashboard."),
    _flag("--dry-run", help="Print the plan and do nothing."),
    _flag("--json", "as_json", help="Print the plan as JSON, with each check of its nodes, and do nothing."),
    _flag("--yes", help="Do not ask for confirmation. The safety checks still run."),
    click.Option(
        ["--typed"], metavar="TEXT", help="With --yes: the job id or path, if the plan requires you to type it."
    ),
    click.Option(
        ["--why"], metavar="TEXT", default="", help="The reason. It is written to the switch and to the ledger."
    ),
    _duration(
        "--wait",
        default=None,
        help="The maximum wait for the result: the switch consumed, a checkpoint committed or the job restarted. "
        "[default: until the first effect, at most 8s; requeue: until the job runs again, at most 4m]",
    ),
    CONFIG,
    SSH_CONFIG,
)
"""The options of every verb."""


def _switch(kind: str) -> click.Option:
    return click.Option(["--switch"], metavar="PATH", help=f"The {kind} switch to remove, if several are armed.")


OPTIONS = {
    "kill switch": _switch("kill"),
    "save switch": _switch("save"),
    "count": click.Option(
        ["--count"],
        type=click.IntRange(1, 1000),
        metavar="N",
        default=1,
        show_default=True,
        help="The number of jobs to queue.",
    ),
    "run": click.Option(["--run"], metavar="RUN", help="Only the jobs of this run. Without it: all your jobs."),
}
"""The options that only some verbs have."""


def _act(spec: VerbSpec) -> click.Command:
    """The command of a verb."""

    def callback(args: tuple[str, ...], **options: Any) -> int:
        from trainmon.cli.act.run import Options, run

        return run(spec.name, args, Options(**options))

    words = complete_hosts if spec.target == "node" else complete_runs
    subjects = click.Argument(["args"], nargs=-1, required=True, metavar=spec.usage, shell_complete=words)
    return click.Command(
        spec.name,
        context_settings=SETTINGS,
        callback=callback,
        params=[subjects, *(OPTIONS[name] for name in spec.options), *COMMON],
        help=f"{spec.summary}\n\n\b\nExample:\n  {PROGRAM} {spec.name} {spec.example}\n\n{EXITS}",
        short_help=spec.summary,
    )


ACTING = tuple(_act(spec) for spec in VERBS if spec.usage)


# ---- answer alerts ---------------------------------------------------------------------------------------------------


ack = _command(
    "ack",
    "trainmon.cli.alerts:ack",
    """Acknowledge an alert: repeats and escalation stop until it resolves or gets worse. ALERT is its id, the beginning
    of the id, or its subject.

    \b
    Examples:
      trainmon-tui ack mfzwk3lq --why "on it"
      trainmon-tui ack gpu:gpu-014/3 --undo

    Exit status: 0 done, or recorded for the next daemon or dashboard, 2 no such alert, 3 the ledger cannot be written.
    """,
    click.Argument(["alert"], metavar="ALERT"),
    click.Option(["--why"], default="", metavar="TEXT", help="A note, such as what you are doing about it."),
    _flag("--undo", help="Remove the acknowledgement."),
    BY,
    JSON,
)


mute = _command(
    "mute",
    "trainmon.cli.alerts:mute",
    """Stop the notifications of an alert, rule, run or node for a while. Muted alerts are still shown. SUBJECT is the
    id or the subject of an alert, as `status` shows them. All given conditions must match.

    \b
    Examples:
      trainmon-tui mute --node gpu-014 --for 4h --why "new fan"
      trainmon-tui mute --rule loss-spike --run video-2b --for 2d

    Exit status: 0 done, or recorded for the next daemon or dashboard, 2 a usage error, 3 the ledger cannot be written.
    """,
    click.Argument(["subject"], required=False, metavar="[SUBJECT]"),
    click.Option(["--rule"], metavar="RULE", help="Match alerts of this rule."),
    click.Option(["--run"], metavar="RUN", help="Match alerts of this run."),
    click.Option(["--node"], metavar="NODE", help="Match alerts of this node."),
    _duration("--for", "lasts", required=True, help="The duration, such as 1h or 2d."),
    click.Option(["--why"], default="", metavar="TEXT", help="The reason. Everybody sees it."),
    BY,
    JSON,
)


unmute = _command(
    "unmute",
    "trainmon.cli.alerts:unmute",
    """Remove a mute. `mute` prints its ID, and `status` lists it.

    \b
    Example:
      trainmon-tui unmute ekk3pqsa

    Exit status: 0 done, or recorded for the next daemon or dashboard, 2 no such mute, 3 the ledger cannot be written.
    """,
    click.Argument(["silence"], metavar="ID"),
    BY,
    JSON,
)


# ---- all commands ----------------------------------------------------------------------------------------------------

GROUPS: dict[str, tuple[click.Command, ...]] = {
    "Set up": (init, check, log_format, rules, service, completion),
    "In a job": (run, hooks),
    "Look": (snapshot, users, ranks, status, actions, attempts, explain, report, nodes, replay, sql, classify),
    "Act on runs, jobs and nodes": ACTING,
    "Answer alerts": (ack, mute, unmute),
}
"""The commands by purpose, as the help lists them."""

DASHBOARD = "dashboard"
"""Runs without a command."""


def print_help(command: str) -> int:
    """Print the help of a command."""
    path = PROGRAM if command == DASHBOARD else f"{PROGRAM} {command}"
    return int(COMMANDS[command].main(["--help"], path, standalone_mode=False))


GROUPS["Set up"] += (
    _command(
        "help",
        f"{__name__}:print_help",
        """Show the help of COMMAND. Without it: the help of the dashboard, and a list of all commands.

        \b
        Example:
          trainmon-tui help explain

        Exit status: 0 shown, 2 a usage error.
        """,
        click.Argument(
            ["command"],
            type=click.Choice([DASHBOARD, "help", *(one.name or "" for group in GROUPS.values() for one in group)]),
            default=DASHBOARD,
            metavar="[COMMAND]",
        ),
    ),
)

COMMANDS = {command.name or "": command for group in ((dashboard,), *GROUPS.values()) for command in group}
SUBCOMMANDS = tuple(name for name in COMMANDS if name != DASHBOARD)

# ---- what a shell completes: the scripts for the shells are those of click -------------------------------------------

COMPLETE = "_TRAINMON_TUI_COMPLETE"
"""Set by the shell's completion, which asks for the words that may follow."""


def complete(instruction: str) -> int:
    """Answer a shell that asks which words may follow; the exit status."""
    shell = SHELLS.get(instruction.partition("_")[0])
    if shell is None:
        return 1
    click.echo(shell(Words(), {}, PROGRAM, COMPLETE).complete())
    return 0


def print_completion(shell: str) -> None:
    """Print the script for a shell."""
    click.echo(SHELLS[shell](Words(), {}, PROGRAM, COMPLETE).source())


class Bash(BashComplete):
    """To bash, `--demo=s` is three words. It completes the last."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        joined = "\0".join(words).removesuffix("\0=").replace("\0=\0", "=")
        return joined.split("\0") if joined else [], incomplete


class OneWord(ShellComplete):
    """To zsh and fish, `--demo=s` is one word. They complete all of it."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        option, sign, _ = incomplete.partition("=")
        found = super().get_completions(args, incomplete)
        if sign and option.startswith("-"):
            for item in found:
                item.value = f"{option}={item.value}"
        return found


class Zsh(OneWord, ZshComplete):
    """As click's, whose script needs that the completion of zsh is loaded."""

    source_template = ZshComplete.source_template.replace(
        "    compdef ", "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n    compdef "
    )


class Fish(OneWord, FishComplete):
    """As click's, whose script cuts a description at its first comma."""

    source_template = FishComplete.source_template.replace('split ","', 'split -m 1 ","')


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


class Words(click.Group):
    """The command line as click sees it: the options of the dashboard, then a command or hosts."""

    def __init__(self) -> None:
        self._hosts, *options = dashboard.params
        super().__init__(PROGRAM, params=options, commands=[COMMANDS[name] for name in SUBCOMMANDS])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        hosts = [] if incomplete.startswith("-") else self._hosts.shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *hosts]
