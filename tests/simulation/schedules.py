"""Random schedules of that world: what comes from outside, shrinking, and faults on purpose."""

import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from tests.simulation import world as shipped_world
from tests.simulation.world import ACCOUNT, T, WAIT, Broken, Request, days, of_key
from tests.support.seams.accounting import leases, rights

SHIPPED = SimpleNamespace(**vars(leases) | vars(rights))
FAULTS = {each.pop("name"): each for each in tomllib.loads(Path(__file__).with_name("faults.toml").read_text())["fault"]}
KINDS = {
    "arrive": 60, "batch": 3, "hang_up": 4, "cut": 7, "limit": 3.5, "kill": 3, "stop": 3, "start": 3, "leave": 2.5,
    "machine": 2, "write_off": 2.5, "database": 1.5, "midnight": 3, "delete": 0.5,
}


def stimuli(seed):
    """Yield what comes from outside: after how long, what, and three numbers that decide the rest."""
    rnd = random.Random(seed ^ 0x5EED).random
    quiet, gap = rnd() < 0.3, 16 if rnd() < 0.25 else 4
    kinds = [*KINDS]
    weights = [KINDS[kind] * (0.35 if quiet and kind != "arrive" else 1) for kind in kinds]
    draw = random.Random(seed ^ 0xD1CE)
    while True:
        for kind in draw.choices(kinds, weights, k=50):
            yield int(rnd() * gap), "arrive" if seed % 8 == 0 else kind, rnd(), rnd(), rnd()


class Schedule:
    """What happens in a world from outside: `a` picks one, `b` and `c` say how."""

    def __init__(self, seed, rules, trace=None, world=shipped_world):
        self.world, self.w = world, world.World(seed, rules, trace)

    def run(self, given, events):
        w = self.w
        w.push(0, self.next, iter(given))
        self.more = True
        while self.more and w.events < events:
            w.step()
        self.drain()
        self.final()

    def next(self, given):
        """Take the next one; it comes after its gap."""
        for gap, kind, *choices in given if self.more else ():
            self.w.push(gap, self.happen, given, kind, choices)
            return
        self.more = False

    def happen(self, given, kind, choices):
        if self.more:
            getattr(self, kind)(*choices)
            self.next(given)

    def nothing(self):
        pass

    def pick(self, choices, a):
        return choices[int(a * len(choices))] if choices else None

    def open(self, a):
        return self.pick([gate for gate in self.w.gates if gate.state == "open"], a)

    def arrive(self, a, b, c):
        w = self.w
        if (gate := self.open(a)) is None:
            return
        w.arrived += 1
        id, key = f"r{next(w.ids)}", ("K0", "K1", "K1", "K2")[int(b * 64) % 4]
        if w.exact:
            w.arrive(gate, Request(id, "K1", 1, 1, 1 + int(c * 12)))
            return
        how, amount = c * 128 % 1, 0 if b < 0.06 else 1 + int(b * 5)
        if w.large and b * 256 % 1 < 0.15:
            amount *= 3
        cost = amount if how < 0.35 else int((how - 0.35) * 2 * amount) if how < 0.85 else amount
        if how > 0.85 and amount and w.excessive:
            cost += 1 + int(c * 4)
        w.arrive(gate, Request(id, key, amount, cost, 1 + int(c * 25)))

    def batch(self, a, b, c):
        if gate := self.open(a):
            key = "K1" if b < 0.5 else "K0"
            self.w.arrive(gate, Request(f"b{next(self.w.ids)}", key, 1 + int(c * 8), 0, 0, reserves=True))

    def hang_up(self, a, b, c):
        if (gate := self.open(a)) and not gate.stopped:
            if waits := self.pick(gate.rights.waiting, b):
                self.w.note(waits.id, "hangs up")
                gate.rights.withdraw(waits)
                self.w.done_waiting(gate, waits)
                self.w.serve(gate)
            elif runs := self.pick([*gate.running.values()], b):
                self.w.finish(gate, runs, int(c * runs.cost))

    def kill(self, a, b, c):
        if gate := self.pick(self.w.gates, a):
            self.w.note("kill -9", gate.id)
            self.w.bury(gate)
            if b < 0.7:
                self.w.push(1 + int(c * 20), self.revive, gate.machine)

    def revive(self, machine):
        if not machine.away:
            self.w.start(machine)

    def start(self, a, b, c):
        if len(self.w.gates) < 4 and (machine := self.pick([m for m in self.w.machines if not m.away], a)):
            self.w.start(machine)

    def leave(self, a, b, c):
        if (gate := self.open(a)) and not gate.stopped:
            self.w.note(gate.id, "leaves")
            gate.state = "leaving"
            self.w.leave(gate)

    def stop(self, a, b, c):
        if gate := self.pick([gate for gate in self.w.gates if not gate.stopped], a):
            self.w.note("SIGSTOP", gate.id)
            gate.stopped = True
            self.w.push(2 + int(b * 60), self.go_on, gate)

    def go_on(self, gate):
        if gate.stopped and not gate.dead:
            self.w.note("SIGCONT", gate.id)
            gate.stopped, gate.reach = False, self.w.now
            backlog, gate.backlog = gate.backlog, []
            for call, args in backlog:
                call(*args)
            self.w.look_after(gate.machine)
            self.w.pump(gate)

    def machine(self, a, b, c):
        """A machine is cut off (its processes live), or down, or burnt."""
        w = self.w
        machine = self.pick([m for m in w.machines if not m.away], a)
        if machine is None:
            return
        machine.away, machine.destroyed = True, b > 0.8
        w.note(machine.name, "is cut off" if b < 0.4 else "burns" if machine.destroyed else "is down")
        for gate in [gate for gate in w.gates if gate.machine is machine]:
            if b >= 0.4:
                w.bury(gate)
            elif gate.call:
                w.break_off(gate, gate.call)
        if machine.destroyed:
            of = [folder for folder in w.folders if folder.machine is machine]
            w.lost.update(record.id for folder in of for record in folder.records)
        else:
            w.push(5 + int(c * 90), self.back, machine)

    def back(self, machine):
        if machine.away and not machine.destroyed:
            self.w.note(machine.name, "is back")
            machine.away = False
            for gate in self.w.gates:
                gate.reach = self.w.now
            if not any(gate.machine is machine for gate in self.w.gates):
                self.w.start(machine)

    def write_off(self, a, b, c):
        if self.w.db.up and (machine := self.pick([m for m in self.w.machines if m.away], a)):
            self.w.write_off(machine, return_rights=b < 0.4)

    def database(self, a, b, c):
        if self.w.db.up:
            self.w.note("database away")
            self.w.db.up = False
            self.cut(0, 0, 0)
            self.w.push(2 + int(b * 40), self.database_back)

    def database_back(self):
        if not self.w.db.up:
            self.w.note("database back")
            self.w.db.up = True
            for gate in self.w.gates:
                gate.reach = self.w.now

    def cut(self, a, b, c):
        """Connections break: what was on them comes late, or never, or came and nobody hears."""
        w = self.w
        taken = [folder.lock for folder in w.folders if folder.lock]
        for owner in [*w.gates, *(gate.books for gate in w.gates), *taken]:
            if (call := owner.call) and (not w.db.up or w.rnd() < 0.6):
                call.dropped, call.late = w.rnd() < 0.3, int(w.rnd() * 15)
                w.note("a connection breaks:", getattr(owner, "id", "books"), call.name)
                w.break_off(owner, call)

    def limit(self, a, b, c):
        db = self.w.db
        key = self.pick(["A", "A", "K0", "K1", "K1"], a)
        if not db.up or key in db.deleted:
            return
        old = db.rows[ACCOUNT].limit
        limit = int(c * 30)
        if key == "A":
            limit = old + 1 + int(c * 25) if b < 0.7 else int(c * old)
        elif key == "K1" and b < 0.3:
            limit = None
        self.w.note("limit of", key, "is", limit)
        new = [of_key("K1", days(0))] if key == "K1" else []
        for budget in {*new, *(budget for budget in db.rows if budget.id == key)}:
            db.set_limit(budget, limit)
        db.keys.update({key: limit} if key != "A" else {})
        self.tell_all()

    def delete(self, a, b, c):
        key = "K0" if a < 0.5 else "K1"
        if self.w.db.up and key not in self.w.db.deleted:
            self.w.note("delete", key)
            self.w.db.delete_key(key)
            self.tell_all()

    def tell_all(self):
        for gate in self.w.gates:
            self.w.notify(gate.id)

    def midnight(self, a, b, c):
        self.w.day += 1
        self.w.note("midnight")
        for gate in self.w.gates:
            self.w.push(int(self.w.rnd() * 8), self.turn, gate, days(self.w.day))

    def turn(self, gate, today):
        if not self.w.later(gate, self.turn, gate, today):
            gate.today = max(gate.today, today)
            self.w.renew(gate)
            self.w.serve(gate)

    # The end

    def drain(self):
        """Heal everything, let what waits and runs end and everybody go, settle what is left."""
        w = self.w
        w.loss, self.more = 0, False
        self.database_back()
        for machine in w.machines:
            self.back(machine)
        for gate in [*w.gates]:
            self.go_on(gate)
        w.until(w.now + WAIT + 45)
        for gate in [*w.gates]:
            if w.rnd() < 0.4:
                w.bury(gate)
            elif gate.state != "off":
                gate.state = "leaving"
                w.leave(gate)
        w.until(w.now + WAIT + 40)
        for gate in [*w.gates]:
            w.bury(gate)
        for machine in w.machines:
            if machine.destroyed:
                w.write_off(machine, return_rights=w.rnd() < 0.5)
        for folder in w.folders:
            if w.is_free(folder):
                w.take_over(folder, None)
        w.until(w.now + 200)

    def final(self):
        w, db = self.w, self.w.db
        least = min(row.limit for row in db.rows.values() if row.limit is not None)
        if w.exact and w.admitted != min(w.arrived, least):
            raise self.world.Broken(f"2: {w.admitted} of {w.arrived}, limit {least}")
        charged = {record.id for folder in w.folders for record in folder.records}
        if missing := charged - w.lost - db.generations or db.generations - charged:
            raise self.world.Broken(f"3: {missing} not booked, or never charged")
        for holder, row in db.holders.items():
            left = db.of_holder(holder)
            kept = db.machines.get(holder) and db.machines[holder].destroyed
            if row.live or (left and not kept):
                raise self.world.Broken(f"4: {holder} is left, with {left}")
        for budget, row in db.rows.items():
            if row.reserved:
                raise self.world.Broken(f"4: {row.reserved} reserved of {budget}")
            db.check(budget)


def failure(seed, given, events=300, *, rules=SHIPPED, world=shipped_world, trace=None):
    """Return what is broken by these stimuli, and by as much time after them; None if nothing is."""
    try:
        Schedule(seed, rules, trace, world).run(given, events)
    except world.Broken as broken:
        return str(broken)
    return None


def shrunk(seed, events=300, **broken):
    """Return the shortest part of a schedule that still breaks the same check, as its trace."""
    given, source = [], stimuli(seed)

    def taken():
        for stimulus in source:
            given.append(stimulus)
            yield stimulus

    check = failure(seed, taken(), events, **broken)[:1]
    idle = [(3, "nothing")] * events

    def breaks(some, trace=None):
        found = failure(seed, [*some, *idle], events, trace=trace, **broken)
        return found if found and found[:1] == check else None

    size = max(1, len(given) // 2) if breaks(given) else 0
    while size:
        place = 0
        while place < len(given):
            shorter = given[:place] + given[place + size :]
            if breaks(shorter):
                given[:] = shorter
            else:
                place += size
        size //= 2
    trace = []
    return [*trace, breaks(given, trace), *trace]


def seeded(name):
    """Return the decisions and the world with one rule broken: a text of theirs is replaced."""
    changes = FAULTS[name]["change"]

    def source(module):
        text = Path(module.__file__).read_text()
        for old, new in changes:
            if old in text:
                assert text.count(old) == 1, old
                text = text.replace(old, new)
                applied.append(old)
        return text

    applied, rules, world = [], dict(vars(leases)), dict(vars(shipped_world))
    for module, into in ((rights, rules), (leases, rules), (shipped_world, world)):
        exec(compile(source(module), module.__file__, "exec"), into)
    assert len(applied) == len(changes), changes
    return {"rules": SimpleNamespace(**rules), "world": SimpleNamespace(**world)}
