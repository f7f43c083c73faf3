"""Edits the rewards of the workbench's recipe, and lets the engine try them."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.page_states.rewards import TRIED_ROWS, RewardFacts, rewards_state
from burnish_app.recipe.rewards import RewardLine, reward_lines, with_rewards
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.rewards.rewards_card import RewardsCard
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.contract.serve.data_requests import TryRewardsRequest
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.reward_trial import RewardTrial


class RewardsEditor(QObject):
    """Keeps the rewards of the recipe and those on the card the same.

    Args:
        client: connection to the engine.
        bench: workbench with the recipe.
        parent: parent in Qt's object tree.

    Attributes:
        rewritten: signal with the recipe whose rewards were edited.
        spoiled: signal without arguments, emitted when an edit made a reward invalid.
        card: card of the rewards.
    """

    rewritten = Signal(object)
    spoiled = Signal()

    def __init__(self, client: EngineClient, bench: Workbench, parent: QObject) -> None:
        super().__init__(parent)
        self._bench = bench
        self.card = RewardsCard()
        self.card.edited.connect(self._edited)
        self.card.wanted.connect(self._try)
        self.card.busy.cancel.connect(self._cancel)
        self._question = Question(
            client,
            self,
            self._answered,
            self._failed,
            progressed=self.card.busy.set_progress,
            changed=lambda: self.show_recipe(self._bench.recipe),
        )
        self._rewards: list[RewardSection] | None = None  # those that the lines are about
        self._lines: tuple[RewardLine, ...] = ()
        self._problems: dict[int, str] = {}
        self._trial: RewardTrial | None = None
        self._failure = ""
        self._tried: Recipe | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the recipe has the rewards that are shown."""
        return not (self._problems and self._bench.recipe.preference.learns_rewards)

    def drop_edits(self) -> None:
        """Show the rewards of the recipe at the next `show_recipe`, not what is typed."""
        self._rewards = None

    def show_recipe(self, recipe: Recipe) -> None:
        """Show the rewards of a recipe; as they are typed, as long as they are the same."""
        if recipe.reward != self._rewards:
            self._rewards, self._lines, self._problems = recipe.reward, reward_lines(recipe), {}
        if self._tried is not None and (self._problems or _judged(recipe) != _judged(self._tried)):
            self._trial, self._failure, self._tried = None, "", None
            self._question.drop()
        self.card.apply(
            rewards_state(
                RewardFacts(
                    learns=recipe.preference.learns_rewards,
                    has_data=bool(recipe.data.files),
                    lines=self._lines,
                    problems=self._problems,
                    trial=self._trial,
                    failure=self._failure,
                    is_trying=self._question.is_waiting,
                )
            )
        )

    def _edited(self, lines: Sequence[RewardLine]) -> None:
        self._lines = tuple(lines)
        recipe, self._problems = with_rewards(self._bench.recipe, lines)
        if recipe is not None:
            self._rewards = recipe.reward
            self.rewritten.emit(recipe)
        else:
            self.spoiled.emit()
        self.show_recipe(self._bench.recipe)

    def _try(self) -> None:
        self._trial, self._failure, self._tried = None, "", self._bench.recipe
        self._question.ask(TryRewardsRequest, recipe=self._bench.recipe_toml, rows=TRIED_ROWS)

    def _cancel(self) -> None:
        self._question.drop()

    def _answered(self, result: Result) -> None:
        self._trial = result.trial

    def _failed(self, failure: Failure) -> None:
        self._failure = f"{failure.what} {failure.remedy}".strip()


def _judged(recipe: Recipe) -> tuple[object, ...]:
    """Return what of a recipe decides how a trial ends."""
    start = recipe.adapter.start
    return recipe.model, recipe.data, start, recipe.reinforce, recipe.reward, recipe.task, recipe.train.seed
