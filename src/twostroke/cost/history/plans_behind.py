"""Plans of a pipeline that its first stages compute while the last one computes another."""

from __future__ import annotations

from twostroke.types.plan import Plan


class PlansBehind:
    """The plans after the one that is executed next. `request_id in behind`: whether one of them holds it."""

    def __init__(self) -> None:
        self._held: dict[int, frozenset[str]] = {}

    def __contains__(self, request_id: str) -> bool:
        return any(request_id in names for names in self._held.values())

    def begun(self, plan: Plan) -> frozenset[str]:
        """A plan was begun after others; the request ids that it holds."""
        self._held[plan.step_id] = names = frozenset(each.request.request_id for each in plan.sequences)
        return names

    def ended(self, plan: Plan) -> None:
        """The plan was computed by all stages. One that was behind no other changes nothing."""
        if self._held:
            self._held.pop(plan.step_id, None)
