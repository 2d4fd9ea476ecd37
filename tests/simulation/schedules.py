"""Random schedules: what comes from outside; shrinking; and rules that are broken on purpose."""

import random
import tomllib
from itertools import islice
from pathlib import Path
from types import SimpleNamespace as Record

from tests.simulation import database, world
from tests.simulation.database import ACCOUNT, Broken, days, of_key
from tests.simulation.world import WAIT, Request
from tests.support.seams.accounting import leases, rights

SHIPPED = Record(**vars(leases) | vars(rights))
FAULTS = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())["fault"]
KINDS = {"arrive": 60, "cut": 7, "hang_up": 4, "limit": 3.5} | {"database": 1.5, "delete": 0.5}
KINDS |= dict.fromkeys(("batch", "kill", "begin", "stop", "midnight"), 3)
KINDS |= {"leave": 2.5, "write_off": 2.5, "machine": 2}


def stimuli(seed):
    """Yield what comes from outside: after how long, what, and three numbers that say how."""
    rng = random.Random(seed ^ 0x5EED)
    few, gap = rng.random() < 0.3, 16 if rng.random() < 0.25 else 4
    weights = [each * (0.35 if few and kind != "arrive" else 1) for kind, each in KINDS.items()]
    while True:
        for kind in rng.choices([*KINDS], weights, k=50):
            what = "arrive" if seed % 4 == 0 else kind
            yield int(rng.random() * gap), what, rng.random(), rng.random(), rng.random()


def pick(choices, a):
    return choices[int(a * len(choices))] if choices else None


class Schedule:
    """What happens to a world from outside: `a` picks one, `b` and `c` say how."""

    def __init__(self, seed, rules=SHIPPED, trace=None, world=world, database=database):
        self.world = self.w = world.World(seed, rules, trace, database.Database)

    def run(self, given, events=300):
        """Play until there were that many events, let everything end, and look at what is left."""
        self.w.push(0, self.follow, iter(given), "nothing")
        self.more = True
        while self.more and self.w.events < events:
            self.w.step()
        self.drain()
        self.final()

    def follow(self, given, kind, *choices):
        if self.more:
            getattr(self, kind)(*choices)
            gap, *following = next(given, (0, None))
            self.more = following[0] is not None
            self.w.push(gap, self.follow, given, *following)

    def nothing(self):
        pass

    def open(self, a):
        return pick([each for each in self.w.processes if each.state == "open"], a)

    def arrive(self, a, b, c):
        key, how = ("K0", "K1", "K1", "K2")[int(b * 64) % 4], c * 128 % 1
        amount = 0 if b < 0.06 else 1 + int(b * 5)
        amount *= 3 if self.w.large and b * 256 % 1 < 0.15 else 1
        cost = int((how - 0.35) * 2 * amount) if 0.35 < how < 0.85 else amount
        cost += 1 + int(c * 4) if how > 0.85 and amount and self.w.excessive else 0
        if self.w.exact:
            key, amount, cost = "K1", 1, 1
        elif self.w.crowd:  # nobody uses anything up, and a few want much
            amount, cost = 8 if b * 256 % 1 < 0.15 else 1 + int(b * 2), 0
        self.ask(a, key, amount, cost, 1 + int(c * 25))

    def batch(self, a, b, c):
        self.ask(a, "K1" if b < 0.5 else "K0", 1 + int(c * 8), 0, 0, reserves=True)

    def ask(self, a, key, amount, cost, took, *, reserves=False):
        if process := self.open(a):
            self.w.arrived += 1
            request = Request(id=f"r{next(self.w.ids)}", key=key, amount=amount, passed={})
            request.cost, request.took, request.reserves = cost, took, reserves
            self.w.tell(0, process, self.w.arrive, request)

    def hang_up(self, a, b, c):
        if (process := self.open(a)) is None or process.stopped:
            return
        if waits := pick(process.rights.waiting, b):
            self.w.note(waits.id, "hangs up")
            self.w.hang_up(process, waits)
            self.w.decided(process, process.rights.serve())
        elif runs := pick([*process.running.values()], b):
            self.w.finish(process, runs, int(c * runs.cost))

    def kill(self, a, b, c):
        if process := pick(self.w.processes, a):
            self.w.bury(process)
            if b < 0.7:
                self.w.push(1 + int(c * 20), self.begin, 0, 0, 0, process.machine)

    def begin(self, a, b, c, machine=None):
        there = [each for each in self.w.machines if not each.away and (machine or each) is each]
        if len(self.w.processes) < 4 and (machine := pick(there, a)):
            self.w.start(machine)

    def leave(self, a, b, c):
        if (process := self.open(a)) and not process.stopped:
            self.w.note(process.id, "leaves")
            process.state = "leaving"
            self.w.leave(process)

    def stop(self, a, b, c):
        if process := pick([each for each in self.w.processes if not each.stopped], a):
            self.w.note("SIGSTOP", process.id)
            process.stopped = True
            self.w.push(2 + int(b * 60), self.go_on, process)

    def go_on(self, process):
        if process.stopped and not process.dead:
            self.w.note("SIGCONT", process.id)
            process.stopped, process.reach = False, self.w.now
            backlog, process.backlog = process.backlog, []
            for what in backlog:
                self.w.reach(*what)
            self.w.look_after(process.machine)
            self.w.pump(process)

    def machine(self, a, b, c):
        """Cut a machine off (its processes live), have it go down, or burn."""
        w = self.w
        if (machine := pick([each for each in w.machines if not each.away], a)) is None:
            return
        machine.away, machine.destroyed = True, b > 0.8
        w.note(machine.name, "is cut off" if b < 0.4 else "burns" if b > 0.8 else "is down")
        for process in [each for each in w.processes if each.machine is machine]:
            if b >= 0.4:
                w.bury(process)
            elif process.call:
                w.break_off(process, process.call)
        if machine.destroyed:
            of = [each for each in w.journals if each.process.machine is machine]
            w.lost.update(record.id for journal in of for record in journal.records)
        else:
            w.push(5 + int(c * 90), self.back, machine)

    def back(self, machine):
        if machine.away and not machine.destroyed:
            self.w.note(machine.name, "is back")
            machine.away = False
            self.touch()
            if not any(each.machine is machine for each in self.w.processes):
                self.w.start(machine)

    def touch(self):
        for process in self.w.processes:
            process.reach = self.w.now

    def write_off(self, a, b, c):
        if self.w.db.up and (machine := pick([each for each in self.w.machines if each.away], a)):
            self.w.note("write off", machine.name, "and return rights" if b < 0.4 else "")
            self.w.db.write_off(machine, return_rights=b < 0.4)

    def database(self, a, b, c):
        if self.w.db.up:
            self.w.note("database away")
            self.w.db.up = False
            self.cut(a, b, c)
            self.w.push(2 + int(b * 40), self.database_back)

    def database_back(self):
        if not self.w.db.up:
            self.w.note("database back")
            self.w.db.up = True
            self.touch()

    def cut(self, a, b, c):
        """Break connections: what was on them comes late, or never, or came and nobody hears."""
        w = self.w
        taken = [journal.taken_by for journal in w.journals if journal.taken_by]
        for owner in [*w.processes, *(each.books for each in w.processes), *taken]:
            if (call := owner.call) and (not w.db.up or w.rnd() < 0.6):
                call.dropped, call.late = w.rnd() < 0.3, int(w.rnd() * 15)
                w.note("a connection breaks of", getattr(owner, "id", "books"))
                w.break_off(owner, call)

    def limit(self, a, b, c):
        db, key = self.w.db, pick(["A", "A", "K0", "K1", "K1"], a)
        if not db.up or key in db.deleted:
            return
        limit = None if key == "K1" and b < 0.3 else int(c * 30)
        if key == "A":
            old = db.rows[ACCOUNT].limit
            limit = old + 1 + int(c * 25) if b < 0.7 else int(c * old)
        self.set_limit(key, limit, {of_key("K1", days(0))} if key == "K1" else set())

    def delete(self, a, b, c):
        key = "K0" if a < 0.5 else "K1"
        if self.w.db.up and key not in self.w.db.deleted:
            self.w.db.deleted[key] = self.w.now
            self.set_limit(key, 0, {of_key(key, days(self.w.day))})

    def set_limit(self, key, limit, new):
        db = self.w.db
        self.w.note("limit of", key, "is", limit, "for good" if key in db.deleted else "")
        for budget in sorted(new.union(each for each in db.rows if each.id == key)):
            db.set_limit(budget, limit)
        if key != "A":
            db.keys[key] = limit
        for process in self.w.processes:
            self.w.notify(process.id)

    def midnight(self, a, b, c):
        self.w.day += 1
        self.w.note("midnight")
        for process in self.w.processes:
            self.w.tell(int(self.w.rnd() * 8), process, self.turn, days(self.w.day))

    def turn(self, process, today):
        process.today = max(process.today, today)
        self.w.renew(process)
        self.w.decided(process, process.rights.serve())

    # The end

    def drain(self):
        """Heal everything, let what waits and runs end and everybody go, settle what is left."""
        w = self.w
        w.loss, self.more = 0, False
        self.database_back()
        for machine in w.machines:
            self.back(machine)
        for process in [*w.processes]:
            self.go_on(process)
        w.until(w.now + WAIT + 45)
        for process in [*w.processes]:
            if w.rnd() < 0.4:
                w.bury(process)
            elif process.state != "off":
                process.state = "leaving"
                w.leave(process)
        w.until(w.now + WAIT + 40)
        self.settle_the_rest()

    def settle_the_rest(self):
        w = self.w
        for process in [*w.processes]:
            w.bury(process)
        for machine in w.machines:
            if machine.destroyed:
                w.db.write_off(machine, return_rights=w.rnd() < 0.5)
        for journal in w.journals:
            if w.is_free(journal):
                w.take_over(journal, None)
        w.until(w.now + 200)

    def final(self):
        """Checks 2, 3 and 4."""
        w, db = self.w, self.w.db
        least = min(row.limit for row in db.rows.values() if row.limit is not None)
        if w.exact and w.admitted != min(w.arrived, least):
            raise Broken(f"2: {w.admitted} of {w.arrived}, limit {least}")
        charged = {record.id for journal in w.journals for record in journal.records}
        if wrong := (charged - w.lost - db.generations) | (db.generations - charged):
            raise Broken(f"3: {wrong} not booked, or never charged")
        for holder, row in db.holders.items():
            kept = holder in db.machines and db.machines[holder].destroyed
            if row.live or (db.granted(holder) and not kept):
                raise Broken(f"4: {holder} is left, with {db.granted(holder)}")
        for budget, row in db.rows.items():
            if row.reserved:
                raise Broken(f"4: {row.reserved} reserved of {budget}")
            db.check(budget)


def failure(seed, given=None, trace=None, **broken):
    """Return what a schedule breaks; None if it is nothing."""
    try:
        Schedule(seed, trace=trace, **broken).run(stimuli(seed) if given is None else given)
    except Exception as error:  # noqa: BLE001 - a broken rule may break the world
        return str(error) if type(error).__name__ == "Broken" else repr(error)
    return None


def shrunk(seed, **broken):
    """Return what a schedule breaks and a trace: of the fewest stimuli that break the same."""
    check, given = failure(seed, **broken)[:1], [*islice(stimuli(seed), 300)]

    def breaks(some, trace=None):
        found = failure(seed, [*some, *[(3, "nothing")] * 300], trace, **broken)
        return found if found and found[:1] == check else None

    size, trace = len(given) // 2, []
    while size:
        place = 0
        while place < len(given):
            shorter = given[:place] + given[place + size :]
            if breaks(shorter):
                given = shorter
            else:
                place += size
        size //= 2
    found = breaks(given, trace)
    return [f"seed {seed}, {len(given)} stimuli: {found}", *trace]


def seeded(fault):
    """Return the decisions and the world with one rule broken: texts of theirs are replaced."""
    changes = [tuple(change) for change in fault["change"]]
    rules, made = dict(vars(leases)), {}
    for module in (rights, leases, database, world):
        text = Path(module.__file__).read_text()
        for change in [change for change in changes if text.count(change[0]) == 1]:
            text = text.replace(*change)
            changes.remove(change)
        made[module] = rules if module in {rights, leases} else dict(vars(module))
        exec(compile(text, module.__file__, "exec"), made[module])  # noqa: S102 - our own source
    assert not changes, f"it has to be there once: {changes}"
    parts = {"world": Record(**made[world]), "database": Record(**made[database])}
    return {"rules": Record(**rules), **parts}
