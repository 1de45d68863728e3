"""The command line: parse, call, print. Nothing else in burst prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
import typer.core

from burst import __version__
from burst.cli.outcome import outcome
from burst.errors import UsageError

ELSEWHERE = {  # commands of SkyPilot, dstack and shells, and ours for the same wish
    "launch": "run FILE",
    "apply": "run FILE",
    "train": "run FILE",
    "jobs": "run FILE, or burst ls",
    "queue": "ls",
    "ps": "ls",
    "down": "stop RUN",
    "cancel": "stop RUN",
    "kill": "stop RUN",
    "start": "resume RUN",
    "attach": "logs -f RUN",
    "exec": "ssh RUN",
    "show-gpus": "plan FILE",
    "gpus": "plan FILE",
    "offer": "plan FILE",
    "fleet": "pools",
    "cost-report": "cost",
    "validate": "check FILE",
    "version": "--version",
    "help": "--help",
}


class Commands(typer.core.TyperGroup):
    """The commands; one of another tool's is answered with ours."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's
        """Return the command that is meant, as typer does."""
        if args[0] in ELSEWHERE:
            ctx.fail(f"No such command '{args[0]}'; it is: burst {ELSEWHERE[args[0]]}")
        return super().resolve_command(ctx, args)


FILE_SAYS = {  # options of SkyPilot and dstack for what only the task file says here
    "--infra": "resources: {infra: aws}",
    "--cloud": "resources: {infra: aws}",
    "--region": "resources: {infra: aws/us-east-1}",
    "--zone": "resources: {infra: aws/us-east-1/us-east-1a}",
    "--backend": "resources: {infra: aws}",
    "--gpus": "resources: {accelerators: A100:8}",
    "--gpu": "resources: {accelerators: A100:8}",
    "--cpus": "resources: {cpus: 8+}",
    "--memory": "resources: {memory: 32+}",
    "--instance-type": "resources: {instance_type: m6i.large}",
    "--disk-size": "resources: {disk_size: 256}",
    "--image-id": "resources: {image_id: ...}",
}


class FileCommand(typer.core.TyperCommand):
    """A command on a task file; an option for what the file says is answered with how."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's
        """Parse the words as typer does."""
        for name in (word.partition("=")[0] for word in args):
            if name in FILE_SAYS:
                ctx.fail(f"No such option: {name}; write in the task file: {FILE_SAYS[name]}")
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Elastic training on spot and on-prem machines that survives losing them.",
)

File = Annotated[Path, typer.Argument(help="A task file.", metavar="FILE")]
RunName = Annotated[
    str, typer.Argument(help="A run's id, its beginning, or its URI.", metavar="RUN")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Env = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads this at run time
    typer.Option("--env", metavar="NAME[=VALUE]", help="Set a variable; NAME alone takes yours."),
]
Secret = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--secret", metavar="NAME[=VALUE]", help="As --env, and never written anywhere."),
]
Name = Annotated[Optional[str], typer.Option("--name", "-n", help="Name of the run.")]  # noqa: UP045
Nodes = Annotated[Optional[int], typer.Option("--num-nodes", min=1, help="How many nodes.")]  # noqa: UP045
Workers = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--workers", metavar="N|LOW..HIGH", help="How few and how many workers."),
]
Spot = Annotated[Optional[bool], typer.Option("--use-spot/--no-use-spot", help="Spot machines.")]  # noqa: UP045
Budget = Annotated[Optional[str], typer.Option("--budget", metavar="USD", help="Spend at most.")]  # noqa: UP045
RunUri = Annotated[Optional[str], typer.Option("--run-uri", help="Where runs are kept.")]  # noqa: UP045
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Go on in the background.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(cls=FileCommand)
def check(
    file: File,
    env: Env = None,
    secret: Secret = None,
    use_spot: Spot = None,
    json: Json = False,
) -> None:
    """Say whether a task file is valid, and every problem if it is not."""
    from burst.cli.tasks import Given, check_file

    check_file(file, Given(env=env, secret=secret, use_spot=use_spot), as_json=json)


@app.command(cls=FileCommand)
def plan(
    file: File,
    env: Env = None,
    secret: Secret = None,
    num_nodes: Nodes = None,
    workers: Workers = None,
    use_spot: Spot = None,
    budget: Budget = None,
    json: Json = False,
) -> None:
    """Show where the task could run, what it costs, and the most that can be spent."""
    from burst.cli.tasks import Given, plan_file

    given = Given(
        env=env,
        secret=secret,
        num_nodes=num_nodes,
        workers=workers,
        use_spot=use_spot,
        budget=budget,
    )
    plan_file(file, given, as_json=json)


@app.command(cls=FileCommand)
def run(
    file: File,
    name: Name = None,
    env: Env = None,
    secret: Secret = None,
    num_nodes: Nodes = None,
    workers: Workers = None,
    use_spot: Spot = None,
    budget: Budget = None,
    run_uri: RunUri = None,
    detach: Detach = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Train. Ctrl-C saves and stops; a second one stops at once."""
    from burst.cli.control import start
    from burst.cli.tasks import Given, plan_file

    given = Given(
        name=name,
        env=env,
        secret=secret,
        num_nodes=num_nodes,
        workers=workers,
        use_spot=use_spot,
        budget=budget,
        run_uri=run_uri,
    )
    if dry_run:
        plan_file(file, given, as_json=json, for_run=True)
    else:
        raise typer.Exit(start(file, given, detach=detach, yes=yes, as_json=json))


@app.command()
def resume(
    run: RunName,
    env: Env = None,
    secret: Secret = None,
    detach: Detach = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Go on with a run that stopped, failed, or whose controller is gone."""
    from burst.cli.control import go_on
    from burst.cli.tasks import Given

    given = Given(env=env, secret=secret)
    raise typer.Exit(go_on(run, given, detach=detach, yes=yes, as_json=json))


@app.command()
def adopt(
    uri: Annotated[str, typer.Argument(help="The run's URI.", metavar="URI")],
    env: Env = None,
    secret: Secret = None,
    detach: Detach = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Take over a run from another machine; its nodes go on meanwhile."""
    from burst.cli.control import go_on
    from burst.cli.tasks import Given

    given = Given(env=env, secret=secret)
    raise typer.Exit(go_on(uri, given, detach=detach, yes=yes, as_json=json))


@app.command(hidden=True)
def control(
    run: RunName,
    resumed: Annotated[bool, typer.Option("--resumed", help="It was on before.")] = False,
) -> None:
    """Be the controller of a run in the background; what --detach starts."""
    from burst.cli.control import serve

    raise typer.Exit(serve(run, resumed=resumed))


@app.command()
def stop(
    run: RunName,
    now: Annotated[bool, typer.Option("--now", help="Do not save first; lose steps.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Save, then release every node."""
    from burst.cli.control import stop_run

    raise typer.Exit(stop_run(run, now=now, yes=yes, as_json=json))


@app.command()
def chaos(
    run: RunName,
    kill: Annotated[str, typer.Option("--kill", help="worker, node or controller.")],
    notice: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--notice", metavar="DURATION", help="Warn first, as a cloud does: 5s."),
    ] = None,
    json: Json = False,
) -> None:
    """Kill a part of a run, to see it survive."""
    from burst.cli.control import chaos_run

    raise typer.Exit(chaos_run(run, kill=kill, notice=notice, as_json=json))


@app.command()
def ls(
    all_runs: Annotated[bool, typer.Option("--all", "-a", help="Finished runs too.")] = False,
    json: Json = False,
) -> None:
    """List runs: those that are on, and the last ten others."""
    from burst.cli.show import list_runs

    list_runs(all_runs=all_runs, as_json=json)


@app.command()
def status(run: RunName, json: Json = False) -> None:
    """Show where a run stands: state, step, loss, nodes, dollars."""
    from burst.cli.show import show_status

    show_status(run, as_json=json)


@app.command()
def nodes(
    run: Annotated[Optional[str], typer.Argument(metavar="[RUN]")] = None,  # noqa: UP045
    json: Json = False,
) -> None:
    """Show a run's nodes, past ones too; without RUN, those of all runs that are on."""
    from burst.cli.show import show_nodes

    show_nodes(run, as_json=json)


@app.command()
def ssh(
    run: RunName,
    node: Annotated[Optional[str], typer.Argument(metavar="[NODE]")] = None,  # noqa: UP045
) -> None:
    """Open a shell on a rented node; without NODE, on the head."""
    from burst.cli.control import shell

    shell(run, node)


@app.command()
def logs(
    run: RunName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends.")
    ] = False,
    node: Annotated[Optional[str], typer.Option("--node", help="Only this node.")] = None,  # noqa: UP045
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Ray's, the agents' and the driver's too.")
    ] = False,
) -> None:
    """Print what a run's workers wrote."""
    from burst.cli.show import show_logs

    show_logs(run, follow=follow, node=node, everything=everything)


@app.command()
def cost(
    run: Annotated[Optional[list[str]], typer.Argument(metavar="[RUN]...")] = None,  # noqa: UP045
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print one row per node and kind.")] = False,
) -> None:
    """Say what runs cost, and what for. Without RUN: all of them."""
    from burst.cli.show import show_cost

    show_cost(run or [], as_json=json, as_csv=csv)


@app.command()
def pools(
    name: Annotated[Optional[str], typer.Argument(metavar="[NAME]")] = None,  # noqa: UP045
    all_runs: Annotated[
        bool, typer.Option("--all", "-a", help="Look for refusals in runs in buckets too.")
    ] = False,
    json: Json = False,
) -> None:
    """Show each pool: what is free, its price, its queue, its health, its last refusal."""
    from burst.cli.pools import show_pools

    show_pools(name, all_runs=all_runs, as_json=json)


@app.command()
def doctor(
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="A task file, to look for what it needs.", metavar="[FILE]"),
    ] = None,
    pool: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--pool", metavar="NAME", help="Only this pool: local, ssh/lab, aws."),
    ] = None,
    reap: Annotated[
        bool, typer.Option("--reap", help="List and end machines nobody drives, idle networks.")
    ] = False,
    env: Env = None,
    secret: Secret = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Say what works, here and in each pool, what does not, and what to do about it."""
    from burst.cli.doctor import clear_up, examine
    from burst.cli.tasks import Given, read_task

    if reap and (file or pool):
        raise UsageError("--reap ends machines of any pool; give it neither FILE nor --pool")
    task = read_task(file, Given(env=env, secret=secret)) if file else None
    code = clear_up(yes=yes, as_json=json) if reap else examine(task, pool, as_json=json)
    raise typer.Exit(code)


@app.command()
def schema() -> None:
    """Print the task file's JSON schema, for editors."""
    from burst.cli.tasks import print_schema

    print_schema()


def main() -> int:
    """Run the command line; return the exit code."""
    return outcome(lambda: app(standalone_mode=False), as_json="--json" in sys.argv)
