"""Answer requests about machine, models, data and chat, in this process where that is light, else in a worker."""

from __future__ import annotations

from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.chat.chat_pool import ChatPool
from burnish_engine.contract.serve.data_requests import ColumnsRequest, InspectRequest, PreviewRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import (
    ChatRequest,
    DoctorRequest,
    FetchRequest,
    FreeRequest,
    MachineRequest,
    ModelRequest,
)
from burnish_engine.service.doctor import check_up_in_child
from burnish_engine.service.machine import MachineCache
from burnish_engine.service.plans import PlanService
from burnish_engine.service.recipes import read_recipe_text


class LiveRequests:
    """Answer the requests that a window sends while a person works.

    Args:
        machine: source of the machine's facts.
        plans: store of facts on inspected datasets.
        data: process that reads datasets and model folders.
        chat: processes that hold the chat models.
    """

    def __init__(self, machine: MachineCache, plans: PlanService, data: Child, chat: ChatPool) -> None:
        self._machine = machine
        self._plans = plans
        self._data = data
        self._chat = chat

    def doctor(self, request: DoctorRequest, job: Job) -> Result:
        """Run the whole check-up."""
        return Result(id=request.id, checkup=check_up_in_child(job, bandwidth=request.bandwidth))

    def machine(self, request: MachineRequest, _job: Job) -> Result:
        """Return the machine's facts as they are now."""
        return Result(id=request.id, machine=self._machine.facts())

    def model(self, request: ModelRequest, job: Job) -> Result:
        """Describe a model."""
        return self._data.ask(request, job, about=f"the model {request.path}")

    def fetch(self, request: FetchRequest, job: Job) -> Result:
        """Download a model and describe it."""
        from burnish_engine.advise.facts.catalog import catalog, find_model
        from burnish_engine.hub.fetch import fetch

        fetch(
            request.name,
            token=request.token,
            progress=job.progress,
            cancelled=lambda: job.canceled,
            catalog_entry=find_model(request.name, catalog()),
        )
        return self.model(ModelRequest(id=request.id, path=request.name), job)

    def inspect(self, request: InspectRequest, job: Job) -> Result:
        """Inspect a dataset."""
        recipe = read_recipe_text(request.recipe)
        result = self._data.ask(request, job, about=", ".join(recipe.data.files) or "the dataset")
        if result.dataset is not None:
            self._plans.remember(recipe, result.dataset)
        return result

    def columns(self, request: ColumnsRequest, job: Job) -> Result:
        """List the meanings that the columns of the first data file can have."""
        return self._data.ask(request, job, about="the columns of the dataset")

    def preview(self, request: PreviewRequest, job: Job) -> Result:
        """Render one row as it would be trained on."""
        return self._data.ask(request, job, about=f"row {request.row} of the dataset")

    def chat(self, request: ChatRequest, job: Job) -> Result:
        """Stream a reply."""
        return self._chat.ask(request, job)

    def free(self, request: FreeRequest, _job: Job) -> Result:
        """End the chat processes."""
        self._chat.close()
        return Result(id=request.id)
