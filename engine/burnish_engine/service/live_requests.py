"""Requests about machine, models, data and chat: answered here where that is light, by a worker process where not."""

from __future__ import annotations

from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.contract.protocol import (
    ChatRequest,
    ColumnsRequest,
    DoctorRequest,
    FetchRequest,
    FreeRequest,
    InspectRequest,
    MachineRequest,
    ModelRequest,
    PreviewRequest,
    Result,
)
from burnish_engine.service.doctor import check_up_aside
from burnish_engine.service.machine import Machine
from burnish_engine.service.plans import Plans
from burnish_engine.service.recipes import read_recipe_text


class LiveRequests:
    """What a window asks while a person works.

    Args:
        machine: Probes the machine.
        plans: Is told of datasets that were inspected.
        data: The process that reads datasets and model folders.
        chat: The process that holds the model one talks to.
    """

    def __init__(self, machine: Machine, plans: Plans, data: Child, chat: Child) -> None:
        self._machine = machine
        self._plans = plans
        self._data = data
        self._chat = chat

    def doctor(self, request: DoctorRequest, job: Job) -> Result:
        """The whole check-up."""
        return Result(id=request.id, checkup=check_up_aside(job, bandwidth=request.bandwidth))

    def machine(self, request: MachineRequest, _job: Job) -> Result:
        """The machine as it is now."""
        return Result(id=request.id, machine=self._machine.facts())

    def model(self, request: ModelRequest, job: Job) -> Result:
        """Look at a model."""
        return self._data.ask(request, job, about=f"the model {request.path}")

    def fetch(self, request: FetchRequest, job: Job) -> Result:
        """Download a model and look at it."""
        from burnish_engine.advise.catalog import catalog, find_model
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
        """What is in a dataset."""
        recipe = read_recipe_text(request.recipe)
        result = self._data.ask(request, job, about=", ".join(recipe.data.files) or "the dataset")
        if result.dataset is not None:
            self._plans.remember(recipe, result.dataset)
        return result

    def columns(self, request: ColumnsRequest, job: Job) -> Result:
        """What the columns of the first data file may mean."""
        return self._data.ask(request, job, about="the columns of the dataset")

    def preview(self, request: PreviewRequest, job: Job) -> Result:
        """One row as it would be trained on."""
        return self._data.ask(request, job, about=f"row {request.row} of the dataset")

    def chat(self, request: ChatRequest, job: Job) -> Result:
        """A streamed reply."""
        return self._chat.ask(request, job, about=request.target)

    def free(self, request: FreeRequest, _job: Job) -> Result:
        """End the chat process."""
        self._chat.close()
        return Result(id=request.id)
