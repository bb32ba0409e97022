"""Lives with one rule broken each: what is counted, what is told, what is begun.

The first three were found on Spark. `test_mutants` demands that each is found within 1,000 seeds, by what it does.
"""

from __future__ import annotations

from holdfast.errors import Remedy
from holdfast.protocols.lifecycle import (
    Announce,
    Cured,
    Disown,
    HostLost,
    Life,
    Looked,
    LoseStreams,
    Note,
    PutBack,
    Restore,
    Start,
    State,
    Wake,
)
from holdfast.simulation.schedule import Parts
from tests.simulation.mutants import Mutant

__all__ = ["LIFE_MUTANTS"]


def without(instructions, *kinds):
    return [each for each in instructions if not isinstance(each, kinds)]


# ---- what counts -------------------------------------------------------------------------


class CountsALossTwice(Life):
    """A loss that comes while an attempt is made is a death, and again one when the attempt reports."""

    def _loses_host_meanwhile(self, event):
        out = super()._loses_host_meanwhile(event)
        return [*out, Note(event.frame, event.cause, self.tries)] if out else out


class ReplacedIsADeath(Life):
    """Events are believed whichever attempt they are about."""

    def handle(self, event):
        if hasattr(event, "attempt") and self.state is State.RUNNING:
            event = type(event)(**{name: getattr(event, name) for name in event.__slots__} | {"attempt": self.attempt})
        return super().handle(event)


class AnnouncesNothing(Life):
    def _is_restored(self, event):
        return without(super()._is_restored(event), Announce)


class ForgetsLosses(Life):
    """Each notice of a loss is another loss."""

    def _is_new(self, event):
        self._lives_lost = -1
        return super()._is_new(event)


class CountsAFullDisk(Life):
    """What waits for room is tried, and counts."""

    def _comes_due(self, event):
        return super()._comes_due(Looked(event.at_s, has_room=True))


class NumbersNoAttempts(Life):
    """The next attempt has the number of the one before."""

    def _comes_due(self, event):
        out = super()._comes_due(event)
        if any(isinstance(each, Restore) for each in out):
            self.attempt -= 1
            out = [Restore(self.attempt, each.near_is_good, each.frames_are_gone) if isinstance(each, Restore) else each
                   for each in out]  # fmt: skip
        return out


# ---- what is damaged, and what is gone ---------------------------------------------------------


class TrustsDamage(Life):
    def _die(self, at_s, frame, cause):
        good = self._near_is_good
        out = super()._die(at_s, frame, cause)
        self._near_is_good = good
        return out


class FailureMakesGood(Life):
    """A restore that failed is taken for one that was made."""

    def _fails(self, event):
        if self._loss is None:
            self._near_is_good, self._frames_are_gone = True, False
        return super()._fails(event)


class TrustsALostHost(Life):
    def _is_new(self, event):
        good = self._near_is_good
        found = super()._is_new(event)
        self._near_is_good = good
        return found


class RenewalForgetsDamage(Life):
    def _renews(self, event):
        self.cause = None
        return super()._renews(event)


class KeepsUnreadableFrames(Life):
    """It goes back, but not to before the frames that cannot be read."""

    def _is_complained_of(self, event):
        out = super()._is_complained_of(event)
        self._frames_are_gone = False
        return out


class KeepsLostStreams(Life):
    """The board goes on offering frames whose files are gone."""

    def _loses_host(self, event):
        return without(super()._loses_host(event), LoseStreams)


class DownLosesNothing(Life):
    """A unit that is down has nothing to lose."""

    def _loses_host_when_down(self, event):
        return []


class LossWhileMadeIsForgotten(Life):
    """An attempt that is being made does not hear of the loss at all."""

    def _loses_host_meanwhile(self, event):
        return []


class DisownsNobody(Life):
    def handle(self, event):
        return without(super().handle(event), Disown)


class PutsNothingBack(Life):
    def _is_restored(self, event):
        return without(super()._is_restored(event), PutBack)


# ---- what is begun -----------------------------------------------------------------------------


class TwoAtOnce(Life):
    """A loss while an attempt is made begins another one at once."""

    def _loses_host_meanwhile(self, event):
        out = super()._loses_host_meanwhile(event)
        if not out or self.state is not State.RESTORING:
            return out
        self._loss, self.state, self.due_s = None, State.DOWN, event.at_s
        return [*out, Wake(event.at_s)]


class NeverWakes(Life):
    def _plan(self, due_s):
        return without(super()._plan(due_s), Wake)


class NeverDecides(Life):
    """What is suspect stays so."""

    def _doubts(self, event):
        return []


class GivesUpAtTheFirstFailure(Life):
    """An attempt that fails was the last."""

    def _fails(self, event):
        out = super()._fails(event)
        self.due_s = None
        return out


class CuredAndForgotten(Life):
    def _is_cured(self, event: Cured):
        super()._is_cured(event)
        return []


class RenewedAndForgotten(Life):
    def _renews(self, event):
        return without(super()._renews(event), Wake)


class StartsBeforeItTells(Life):
    """The attempt starts, and is told of only then."""

    def _is_restored(self, event):
        out = super()._is_restored(event)
        return [each for each in out if isinstance(each, Start)] + without(out, Start)


class DoesNotHearOfTheEnd(Life):
    def _stops(self, event):
        return []


class GivesUpDamaged(Life):
    """Damaged files are the end, though a backup is kept."""

    def _die(self, at_s, frame, cause):
        if cause.remedy is Remedy.RESTORE:
            self._can_restore = False
        return super()._die(at_s, frame, cause)


class LostHostIsOnlyAStall(Life):
    """A lost host is answered like any death: with what lies there."""

    def _loses_host(self, event: HostLost):
        return self._try_again(event.at_s, event.frame, event.cause) if self._is_new(event) else []


def _life(rule, life, protocol="uncoordinated", graph="sp1"):
    return Mutant(rule, protocol, graph, Parts(life=life))


LIFE_MUTANTS = [
    _life("a loss counts twice", CountsALossTwice),
    _life("a replaced attempt is a death", ReplacedIsADeath),
    _life("a committed frame is announced by nobody", AnnouncesNothing),
    _life("every notice is another loss", ForgetsLosses),
    _life("a full disk is not waited for", CountsAFullDisk),
    _life("attempts have no numbers", NumbersNoAttempts),
    _life("damage is trusted", TrustsDamage, "ecoc"),
    _life("a restore that failed makes the damage good", FailureMakesGood, "ecoc"),
    _life("a lost host is trusted", TrustsALostHost),
    _life("a renewal forgets the damage", RenewalForgetsDamage, "extended", "cycles"),
    _life("frames that cannot be read are kept", KeepsUnreadableFrames),
    _life("lost streams stay on the board", KeepsLostStreams),
    _life("one that is down loses nothing", DownLosesNothing),
    _life("a loss during a restart is not heard", LossWhileMadeIsForgotten),
    _life("nobody is disowned", DisownsNobody),
    _life("nothing is put back", PutsNothingBack, "checkpoint"),
    _life("two attempts at once", TwoAtOnce),
    _life("nobody wakes it", NeverWakes, "two_phase"),
    _life("what is suspect stays suspect", NeverDecides),
    _life("the first failure is the last", GivesUpAtTheFirstFailure),
    _life("cured and forgotten", CuredAndForgotten),
    _life("renewed and forgotten", RenewedAndForgotten, "mixed"),
    _life("it starts before the others are told", StartsBeforeItTells),
    _life("the end is not heard", DoesNotHearOfTheEnd),
    _life("damage is the end", GivesUpDamaged),
    _life("a lost host is only a stall", LostHostIsOnlyAStall),
]
