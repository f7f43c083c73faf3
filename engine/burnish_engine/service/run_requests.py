"""Answer requests about runs, all quickly: long work happens in processes that outlive the server."""

from __future__ import annotations

from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.chat.chat_pool import ChatPool
from burnish_engine.contract.facts.votes import add_vote
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.run.notes import write_notes
from burnish_engine.contract.serve.export_requests import (
    CancelExportRequest,
    ExportRequest,
    ProgramsRequest,
)
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import ChatMessage
from burnish_engine.contract.serve.run_requests import (
    AnnotateRequest,
    CommandRequest,
    CompareRequest,
    DeleteRequest,
    HeldOutRequest,
    PurgeRequest,
    RestoreRequest,
    ResumeRequest,
    RunsRequest,
    StartRequest,
    StopBenchRequest,
    VoteRequest,
)
from burnish_engine.export.destinations.installed import installed_programs
from burnish_engine.runs.compare.overview import overview
from burnish_engine.runs.compare.side_by_side import side_by_side
from burnish_engine.runs.held_out import load_conversations
from burnish_engine.runs.jobs import actions, lease, trash
from burnish_engine.runs.jobs.benches import list_benches, stop_bench
from burnish_engine.runs.jobs.export_job import cancel_export, start_export
from burnish_engine.runs.store import open_run
from burnish_engine.service.plans import PlanService
from burnish_engine.service.recipes import read_recipe_text


class RunRequests:
    """Start, command and list runs.

    Args:
        plans: judge of whether a run fits.
        chat: chat processes, which free memory for a run.
        data: data process, which frees memory as well.
    """

    def __init__(self, plans: PlanService, chat: ChatPool, data: Child) -> None:
        self._plans = plans
        self._chat, self._data = chat, data

    def runs(self, request: RunsRequest, _job: Job) -> Result:
        """Start the waiting runs that can start, then list all runs and the benchmarks that are running."""
        lease.start_waiting()
        return Result(id=request.id, runs=overview(request.folders), benches=list_benches())

    def start(self, request: StartRequest, job: Job) -> Result:
        """Start a run that fits."""
        recipe = read_recipe_text(request.recipe)
        if recipe.devices.where == HERE:  # elsewhere it is planned there, and takes no memory of this machine
            self._chat.end_if_idle()  # before the plan: its memory is room for the run
            if not request.anyway:
                self._plans.require_fit(recipe, job)
        job.check()
        started = actions.start(recipe, anyway=request.anyway)
        self._data.end_if_idle()  # it may have helped to plan
        return Result(id=request.id, run=str(started.root))

    def resume(self, request: ResumeRequest, _job: Job) -> Result:
        """Resume a run."""
        paths = open_run(request.run)
        self._chat.end_if_idle()
        self._data.end_if_idle()
        actions.resume(paths)
        return Result(id=request.id, run=str(paths.root))

    def command(self, request: CommandRequest, _job: Job) -> Result:
        """Send a command to a run."""
        sent = actions.command(open_run(request.run), request.command)
        return Result(id=request.id, detail=sent.id if sent else "")

    def delete(self, request: DeleteRequest, _job: Job) -> Result:
        """Move a run to the trash."""
        paths = open_run(request.run)
        self._chat.end_if_idle()  # it may hold files of the run open, which Windows would not move
        return Result(id=request.id, run=str(trash.discard(paths).root))

    def restore(self, request: RestoreRequest, _job: Job) -> Result:
        """Restore a run from the trash."""
        return Result(id=request.id, run=str(trash.restore(request.run).root))

    def purge(self, request: PurgeRequest, _job: Job) -> Result:
        """Delete a run in the trash for good."""
        trash.purge(request.run)
        return Result(id=request.id)

    def annotate(self, request: AnnotateRequest, _job: Job) -> Result:
        """Replace a run's notes."""
        paths = open_run(request.run)
        write_notes(paths, request.tags, request.text)
        return Result(id=request.id, run=str(paths.root))

    def held_out(self, request: HeldOutRequest, _job: Job) -> Result:
        """Read held-out rows."""
        rows = load_conversations(open_run(request.run))[: request.most]
        found = [[ChatMessage.model_validate(turn) for turn in row] for row in rows]
        return Result(id=request.id, conversations=found)

    def vote(self, request: VoteRequest, _job: Job) -> Result:
        """Keep a blind vote."""
        paths = open_run(request.run)
        return Result(id=request.id, votes=add_vote(paths, request.prompt, request.shown, request.best))

    def compare(self, request: CompareRequest, _job: Job) -> Result:
        """Compare runs."""
        return Result(id=request.id, comparison=side_by_side([open_run(run) for run in request.runs]))

    def stop_bench(self, request: StopBenchRequest, _job: Job) -> Result:
        """End a benchmark."""
        stop_bench(request.pid)
        return Result(id=request.id)

    def export(self, request: ExportRequest, _job: Job) -> Result:
        """Start an export."""
        paths = open_run(request.run)
        start_export(
            paths,
            request.to,
            request.quants,
            request.name,
            importance=request.importance,
            merge_onto=request.merge_onto,
            size_limit_mb=request.size_limit_mb,
        )
        return Result(id=request.id, run=str(paths.root))

    def cancel_export(self, request: CancelExportRequest, _job: Job) -> Result:
        """Ask an export to stop."""
        cancel_export(open_run(request.run))
        return Result(id=request.id)

    def programs(self, request: ProgramsRequest, _job: Job) -> Result:
        """Find programs that take a file."""
        return Result(id=request.id, programs=installed_programs())
