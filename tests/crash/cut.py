"""A history as it was at one moment: what was answered before it was, what was sent is unknown, the rest never was."""
import random

from . import workload
from .history import Counter, Life, Register, Tags


def register(was, moment):
    now = Register(was.key)
    for kind, value, start, end in was.events:
        if end is not None and end < moment:
            now.events.append((kind, value, start, end))
        elif kind != "read" and start < moment:
            now.wrote(value, start, None)
    return now


def counter(was, moment):
    now = Counter(was.key)
    for e in was.events:
        kind, rest = e[0], e[1:]
        if kind == "read" and rest[-1] < moment:
            now.saw(*rest)
        elif kind == "absent" and rest[-1] < moment:
            now.saw_absent(*rest)
        elif kind == "won":
            number, op, parent, tag, start, end = rest
            if end < moment:
                now.won(*rest)
            elif start < moment:
                now.no_answer(number, op, parent, start)
        elif kind == "412":  # also one answered later: it was never logged
            now.lost(*rest)
        elif kind == "won?" and rest[-1] < moment:
            now.no_answer(*rest)
    return now


def life(was, moment):
    now = Life(was.key)
    for what, *rest in was.events:
        if what == "read":
            continue
        if what.endswith("?"):
            value, start = rest
            if start < moment:
                now.no_answer(what[:-1], value, start)
        else:
            value, tag, start, end = rest
            if end < moment:
                now.did(what, value, tag, start, end)
            elif start < moment and what != "found":
                now.no_answer(what, value, start)
    return now


KINDS = {Register: register, Counter: counter, Life: life}


def histories(round_):
    """(name of the member of the Round, {key: history}) of each kind of client."""
    return [(name, member) for name, member in vars(round_).items()
            if isinstance(member, dict) and all(type(h) in KINDS for h in member.values())]


def at(round_, moment):
    """The Round of that moment: the clients that were, and nothing of theirs that came later."""
    now = workload.Round(round_.tenant, random.Random(0))
    for name, member in histories(round_):
        setattr(now, name, {key: KINDS[type(h)](h, moment) for key, h in member.items()})
    now.tags = Tags()
    now.tags.seen = dict(round_.tags.seen)  # also of later: a tag is given with the record, not with the answer
    now.acknowledged = acknowledged(now)
    return now


def acknowledged(round_):
    """Writes that had their answer."""
    n = 0
    for _, member in histories(round_):
        for h in member.values():
            if isinstance(h, Register):
                n += h.acknowledged()
            elif isinstance(h, Counter):
                n += len(h.acknowledged)
            else:
                n += sum(not e[0].endswith("?") and e[0] not in ("read", "found") for e in h.events)
    return n
