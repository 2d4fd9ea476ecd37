"""The world that budgets over processes are tried in: time, faults, checks, and what the caller does.

The decisions are the shipped ones; here is what a gateway does with them: rows, journals, processes
that are killed and stopped, connections that break, notices that are lost. A transaction is atomic;
its answer may be lost, or it comes late, after its sender has given it up or died.

1. At every grant used + reserved + leased <= limit; leased is the sum of the leases, none negative.
   All that was ever admitted <= limit + costs beyond estimates + what was leased when it fell + what
   an operator returned of holders whose journal was not settled.
2. With unit costs and no faults, exactly k of more than k are admitted.
3. Every charge in a journal is booked once, unless its machine was destroyed.
4. At the end nothing is leased, held or reserved, but what counts as used since a journal is lost.
5. No 402 where idle rights within reach, and what is left, covered the request for longer than T;
   before its wait is over, for longer than an answer takes.
6. Limits that are lowered, new, or of a deleted key are obeyed within B of a time in touch.
7. What a budget has used is the sum of what was booked, after every transaction.
8. No 402 where there would have been enough for longer than T, had not younger requests got it.
"""

import heapq
import random
from collections import defaultdict, namedtuple
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from itertools import count
from types import SimpleNamespace

from tests.support.seams.accounting import Reset, leases

WAIT, POLL, RETRY = 80, 12, 4  # ticks
T, B, GRACE, EARLY = 50, 40, 25, 12
FAIR = 40
FIRST_DAY = date(2026, 11, 27).toordinal()
ACCOUNT = leases.BudgetId("account", "A")
Record = namedtuple("Record", (*leases.Charge._fields, "id"))


class Broken(Exception):
    """A check failed; its number comes first."""


@cache
def days(number):
    return date.fromordinal(FIRST_DAY + number).isoformat()


@cache
def of_key(key, day):
    """K0 has a daily limit, K1 one for ever (or none), K2 one for a week."""
    reset = {"K0": Reset.DAILY, "K1": None, "K2": Reset.WEEKLY}[key]
    return leases.BudgetId("key", key, leases.window_of(reset, date.fromisoformat(day)))


def short(word):
    """Return a value as a trace shows it."""
    if isinstance(word, leases.BudgetId):
        return word.id + word.window[7:10]
    if isinstance(word, leases.Ask):
        return f"{word.id}={word.amount}" + " at last" * word.last
    if isinstance(word, dict):
        return "{" + ", ".join(f"{short(key)}: {short(of)}" for key, of in word.items()) + "}"
    if hasattr(word, "returned"):
        return " ".join(map(short, (word.name, word.op, word.returned or "", *word.asks)))
    if names := getattr(word, "__match_args__", getattr(word, "_fields", ())):
        values = ((name, getattr(word, name)) for name in names if name not in {"recalled", "short"})
        return " ".join(f"{name} {short(of)}" for name, of in values if of or of == 0)
    return f"({' '.join(map(short, word))})" if isinstance(word, (list, tuple)) else str(word)


@dataclass
class Truth:
    """What the checks know of a budget, and no process does."""

    admitted: int = 0
    allowed: int = 0
    booked: int = 0
    excess: int = 0
    floor: int = 0
    over_since: int | None = None
    limited_since: int = 0


@dataclass(eq=False)
class Request:
    """A claim; its budgets are those that its gate knows of."""

    id: str
    key: str
    amount: int
    cost: int
    took: int
    reserves: bool = False
    budgets: tuple = ()
    short: frozenset = frozenset()
    day: str = ""
    since: int = 0
    ask_at: int = 0
    covered: int | None = None
    passed: defaultdict = field(default_factory=lambda: defaultdict(int))
    starved: int | None = None

    def counts_towards(self):
        return (ACCOUNT, of_key(self.key, self.day)) if self.amount else ()


class Machine(SimpleNamespace):
    """A host: `away`, `destroyed`, and the folders of its journals."""


class Folder:
    """A journal, whose locks the kernel gives to one process at a time."""

    def __init__(self, gate):
        self.gate, self.machine = gate, gate.machine
        self.records, self.at, self.closed, self.lock = [], 0, False, None


class Books:
    """Settles a folder: a gate's own, or who takes it over."""

    def __init__(self, folder, owner, *, closing):
        self.folder, self.owner, self.closing = folder, owner, closing
        self.call, self.dead = None, False


class Gate:
    def __init__(self, id, machine, today, now, rules):
        self.id, self.machine, self.today, self.reach = id, machine, today, now
        self.state, self.dead, self.stopped, self.call, self.wake = "new", False, False, None, -1
        timing = rules.Timing(wait=WAIT, retry=RETRY, poll=POLL, lease=20)
        self.rights = rules.Rights(timing)
        self.running, self.backlog = {}, []
        self.limited, self.deleted = frozenset(), frozenset()
        self.folder = Folder(self)
        self.books = Books(self.folder, self, closing=False)


@dataclass(eq=False)
class Call:
    """A transaction under way."""

    owner: object
    name: str
    args: tuple
    late: int = 0
    dropped: bool = False


@dataclass
class Lease:
    granted: int = 0
    want: object = None
    until: int = -1


class Database:
    """Executes what was decided; one method is one transaction."""

    def __init__(self, world, limits):
        self.world, self.rules, self.up = world, world.rules, True
        self.keys = dict(zip(("K0", "K1", "K2"), limits[1:], strict=True))
        self.rows = {ACCOUNT: self.rules.BudgetRow(limits[0])}
        self.holders, self.leases, self.deleted = {}, defaultdict(dict), {}
        self.machines, self.generations, self.reservations = {}, set(), set()
        if self.keys["K1"] is not None:
            self.row(of_key("K1", days(0)))

    def row(self, budget):
        found = self.rows.get(budget)
        if found is None:
            truth = self.world.truth[budget]  # the sum of its days in the books
            truth.limited_since = self.world.now
            found = self.rules.BudgetRow(self.keys[budget.id], truth.booked)
            self.rows[budget] = found
        return found

    def looked_at(self, holder, budgets):
        """Return rows with what others want of them."""
        now, found = self.world.now, {}
        for budget in budgets:
            row = found[budget] = self.row(budget)
            row.wants = [
                lease.want
                for id, lease in self.leases[budget].items()
                if lease.want and id != holder and lease.until >= now and self.holders[id].live
            ]
        return found

    def of_holder(self, holder):
        return {budget: of[holder].granted for budget, of in self.leases.items() if holder in of}

    def lease(self, holder, budget):
        return self.leases[budget].setdefault(holder, Lease())

    def operate(self, holder, operation):
        """Return the answer, and for a poll what else the process reads: limits and deleted keys."""
        if operation.name == "register" and holder.id not in self.holders:
            self.holders[holder.id] = self.rules.HolderRow()
            self.machines[holder.id] = holder.machine
        mine, id = self.holders[holder.id], holder.id
        standing = self.rules.standing(mine, operation)
        if standing is not self.rules.Standing.MINE:
            return standing, None
        if operation.name in {"register", "poll"}:
            rows = self.looked_at(id, self.of_holder(id))
            recalled = [budget for budget, row in rows.items() if row.recalled]
            limited = frozenset(key for key, limit in self.keys.items() if limit is not None)
            return self.rules.Polled(recalled), (limited, frozenset(self.deleted))
        mine.op += 1
        if operation.name == "fence":
            return self.rules.Fenced(mine.op, mine.booked_seq, self.of_holder(id)), None
        self.give_back(id, operation.returned)
        if operation.name == "give_back":
            return standing, None
        return self.decide(id, operation), None

    def give_back(self, holder, amounts):
        for budget, amount in amounts.items():
            self.row(budget).leased -= amount
            self.lease(holder, budget).granted -= amount
            self.check(budget)

    def decide(self, holder, operation):
        now, rules = self.world.now, self.rules
        rows = self.looked_at(holder, {b: 0 for ask in operation.asks for b in ask.budgets})
        asked = operation.asks
        if before := [ask for ask in asked if ask.id in self.reservations]:
            asked = [ask for ask in asked if ask not in before]
            operation = replace(operation, asks=asked)
        live = sum(row.live for row in self.holders.values()) or 1
        done = rules.grant(rows, operation, live, now)
        given = dict(done.got)
        for ask in asked:
            if ask.reserves and ask.id in done.fit:
                self.reservations.add(ask.id)
                for budget in ask.budgets:
                    rows[budget].reserved += ask.amount
                    given[budget] = ask.amount
                self.world.push(5 + int(self.world.rnd() * 40), self.world.batch_ends, ask)
        done.fit.extend(ask.id for ask in before)
        for budget, row in rows.items():
            if amount := done.got.get(budget, 0):
                row.leased += amount
                self.lease(holder, budget).granted += amount
            if want := done.wants.get(budget):
                lease = self.lease(holder, budget)
                lease.want, lease.until = want, now + 2 * POLL
                for id, other in self.leases[budget].items():
                    if id != holder and other.granted > 0:
                        self.world.notify(id, budget)
            elif holder in self.leases[budget]:
                self.lease(holder, budget).want = None
            self.check(budget, granted=given.get(budget))
        return done

    def settle(self, holder, records, close):
        if holder not in self.holders:  # it never came to register, and must not afterwards
            self.holders[holder] = self.rules.HolderRow(live=False)
        mine, granted = self.holders[holder], self.of_holder(holder)
        booked = self.rules.settle(mine.booked_seq, records, self.rows, granted)
        for record in booked.charges:
            if record.id in self.generations:
                raise Broken(f"3: {record.id} is settled twice")
            self.generations.add(record.id)
            for budget in (ACCOUNT, of_key(record.owners[1][1], record.day)):
                self.world.truth[budget].booked += record.cost
            mine.booked_seq = record.seq
        for budget, cost in booked.used.items():
            self.row(budget).used += cost
        for budget, right in booked.rights.items():
            self.row(budget).leased -= right
            self.leases[budget][holder].granted -= right
        closed = close and mine.booked_seq >= close
        if closed:
            self.end(holder, self.rules.returned(self.of_holder(holder), settled=True))
        for record in booked.charges:
            for budget in (ACCOUNT, of_key(record.owners[1][1], record.day)):
                self.check(budget)
        return mine.booked_seq, closed

    def end(self, holder, returned):
        row = self.holders[holder]
        row.live, row.epoch = False, row.epoch + 1
        for budget in returned:
            self.row(budget).leased -= self.leases[budget].pop(holder).granted
            self.check(budget)

    def write_off(self, holder, *, return_rights):
        granted = self.of_holder(holder)
        for budget, amount in granted.items() if return_rights else ():
            self.world.truth[budget].allowed += max(0, amount)
        end = self.rules.returned(granted, settled=False, return_rights=return_rights)
        self.end(holder, end)

    def set_limit(self, budget, limit):
        row, truth = self.row(budget), self.world.truth[budget]
        if limit is not None and (row.limit is None or limit < row.limit):
            truth.floor = row.used + row.reserved + row.leased
            if row.limit is None:  # what runs without a right of it comes on top
                truth.limited_since = self.world.now
                truth.allowed += max(0, truth.admitted - truth.booked)
        row.limit = limit
        self.check(budget)

    def delete_key(self, key):
        self.deleted[key] = self.world.now
        today = of_key(key, days(self.world.day))
        for budget in {today, *(b for b in self.rows if b.id == key)}:
            self.set_limit(budget, 0)
        self.keys[key] = 0

    def check(self, budget, granted=False):
        """Checks 1 and 7 of a row that changed."""
        row = self.rows.get(budget)
        if row is None:
            return
        amounts, truth = [each.granted for each in self.leases[budget].values()], self.world.truth
        truth = truth[budget]
        if sum(amounts) != row.leased:
            raise Broken(f"1: leased {row.leased} of {budget}, leases {amounts}")
        if amounts and min(amounts) < 0:
            raise Broken(f"1: a negative lease of {budget}: {amounts}")
        if row.used != truth.booked:
            raise Broken(f"7: used {row.used} of {budget}, booked {truth.booked}")
        if row.limit is None or row.used + row.reserved + row.leased <= row.limit:
            truth.over_since = None
        elif granted:
            raise Broken(f"1: {row} of {budget} after a grant")
        elif truth.over_since is None:
            truth.over_since = self.world.now


class Processes:
    """What gates and their books do with the decisions."""

    def start(self, machine):
        gate = Gate(f"h{next(self.ids)}", machine, days(self.day), self.now, self.rules)
        self.note("start", gate.id, "on", machine.name)
        self.gates.append(gate)
        self.folders.append(gate.folder)
        self.push(0, self.pump, gate)
        self.push(POLL // 2, self.look_after, machine)

    def look_after(self, machine):
        """Let a process take over what another one on its machine has left."""
        gates = [g for g in self.gates if g.machine is machine and g.state == "open"]
        for gate in [gate for gate in gates if not gate.stopped][:1]:
            for folder in [folder for folder in self.folders if folder.machine is machine]:
                if self.is_free(folder) and folder.gate is not gate:
                    self.note(gate.id, "takes over", folder.gate.id)
                    self.take_over(folder, gate)

    def is_free(self, folder):
        """Tell whether the kernel gives the folder's locks."""
        unlocked = folder.lock is None or folder.lock.dead
        return folder.gate.dead and unlocked and not folder.closed and not folder.machine.destroyed

    def take_over(self, folder, owner):
        folder.lock = Books(folder, owner, closing=True)
        self.push(self.delay(), self.settle, folder.lock)

    def later(self, gate, call, *args):
        """Keep what reaches a stopped process; tell whether it is to be left alone."""
        if gate.stopped and not gate.dead:
            gate.backlog.append((call, args))
        return gate.stopped or gate.dead

    def pump(self, gate):
        """Begin the next operation of a gate, or be back when there may be one."""
        if gate.dead or gate.stopped or gate.state == "off":
            return
        operation = gate.rights.next_operation(self.now, gate.today)
        if operation is not None:
            gate.call = self.call(gate, operation.name, operation)
        elif gate.rights.lane is None:
            wake = max(self.now + 1, gate.rights.wakes_at())
            if not self.now < gate.wake <= wake:
                gate.wake = wake
                self.push(wake - self.now, self.pump, gate)

    def call(self, owner, name, *args):
        call = Call(owner, name, args)
        self.push(self.delay(), self.execute, call)
        return call

    def execute(self, call):
        owner = call.owner
        if call.dropped:
            return
        if call.late:
            delay, call.late = call.late, 0
            self.push(delay, self.execute, call)
            return
        unreachable = owner.call is call and not owner.dead and owner.machine.away
        if not self.db.up or unreachable:
            self.break_off(owner, call)
        elif isinstance(owner, Gate):
            result = self.db.operate(owner, *call.args)
            if self.trace is not None and call.name != "poll":
                self.note(owner.id, *call.args, "->", result[0])
            self.push(self.delay(), self.answer, call, *result)
        else:
            self.push(self.delay(), self.settled, call, self.db.settle(*call.args))

    def break_off(self, owner, call):
        """Lose a connection: what became of the transaction is not known."""
        if owner.call is not call or owner.dead:
            return
        owner.call = None
        if isinstance(owner, Books):
            self.push(3, self.settle, owner)
            return
        owner.reach = self.now
        owner.rights.unanswered(call.args[0], self.now)
        if not self.db.up or owner.machine.away:
            self.forget(owner)
        self.push(3, self.pump, owner)

    def forget(self, gate):
        for request in gate.rights.forget():
            self.note(gate.id, "503", request.id)
        self.patient = [pair for pair in self.patient if pair[0] is not gate]

    def answer(self, call, answer, read):
        gate = call.owner
        if self.later(gate, self.answer, call, answer, read):
            return
        if gate.call is call:
            gate.call = None
        if read is not None and call.args[0] is gate.rights.lane:
            gate.state = "open" if gate.state == "new" else gate.state
            gate.limited, gate.deleted = read
            self.renew(gate)
        self.decided(gate, gate.rights.answered(call.args[0], answer))
        if gate.rights.cut_off and gate.state != "off":
            self.note(gate.id, "is cut off")
            gate.state = "off"
            self.forget(gate)
            self.leave(gate)
        self.pump(gate)

    def decided(self, gate, decided):
        for request in decided.admitted:
            self.done_waiting(gate, request)
            self.admit(gate, request)
        for request in decided.refused:
            self.done_waiting(gate, request)
            self.refuse(gate, request)

    def serve(self, gate):
        self.decided(gate, SimpleNamespace(admitted=gate.rights.serve(), refused=()))
        self.pump(gate)

    def done_waiting(self, gate, request):
        self.patient.remove((gate, request))

    def refuse(self, gate, request):
        self.note(gate.id, "402", request.id)
        self.refused += 1
        early = self.now - request.since < WAIT
        for number, since, longest in ((5, request.covered, EARLY if early else T), (8, request.starved, FAIR)):
            if since is not None and self.now - since > longest:
                raise Broken(f"{number}: {gate.id} refuses {request.id}, covered since {since}")

    def leave(self, gate):
        if gate.state in {"off", "leaving"} and not gate.running and not gate.rights.waiting:
            if gate.rights.held():
                raise Broken(f"4: {gate.id} holds something with nothing running")
            gate.books.closing = True
            self.push(0, self.settle, gate.books)

    # Requests

    def budgets(self, gate, request):
        """Return what a request counts towards as far as its gate knows, now."""
        request.day = gate.today
        known = request.counts_towards()
        return known if request.key in gate.limited else known[:1]

    def renew(self, gate):
        """Have waiting requests follow limits and windows."""
        for request in [*gate.rights.waiting]:
            if request.key in gate.deleted:
                gate.rights.withdraw(request)
                self.done_waiting(gate, request)
            elif (budgets := self.budgets(gate, request)) != request.budgets:
                request.budgets, request.covered, request.starved = budgets, None, None
                request.passed.clear()

    def arrive(self, gate, request):
        if self.later(gate, self.arrive, gate, request):
            return
        if request.key in gate.deleted or gate.state != "open":
            return
        request.budgets = self.budgets(gate, request)
        if gate.rights.begin(request, self.now):
            self.admit(gate, request)
        else:
            self.patient.append((gate, request))
            self.pump(gate)

    def admit(self, gate, request):
        if request.reserves:
            return
        now, db = self.now, self.db
        self.note(gate.id, "admits", request.id, request.key, request.amount)
        self.admitted += 1
        for waiting_at, older in self.patient:
            if older.since + EARLY < request.since and self.in_touch(gate, GRACE, older.since):
                if self.in_touch(waiting_at, GRACE, older.since):
                    for budget in older.short.intersection(request.budgets):
                        older.passed[budget] += request.amount
        if request.key in db.deleted and self.in_touch(gate, B, db.deleted[request.key]):
            raise Broken(f"6: {gate.id} admits by deleted {request.key}")
        for budget in request.budgets:
            if gate.rights.lease(budget).idle < 0:
                raise Broken(f"1: {gate.id} holds more than its rights of {budget}")
        for budget in request.counts_towards():
            truth, row = self.truth[budget], db.rows.get(budget)
            truth.admitted += request.amount
            if row is None or row.limit is None:
                continue
            if budget not in request.budgets:
                truth.allowed += request.amount
                if self.in_touch(gate, B, truth.limited_since):
                    raise Broken(f"6: {gate.id} does not know of the limit of {budget}")
            elif truth.over_since is not None and self.in_touch(gate, B, truth.over_since):
                raise Broken(f"6: {gate.id} admits beyond {budget}, over since {truth.over_since}")
            bound = max(row.limit, truth.floor) + truth.excess + truth.allowed
            if truth.admitted + row.reserved > bound:
                raise Broken(f"1: {truth.admitted} + {row.reserved} of {budget}, bound {bound}")
        gate.running[request.id] = request
        self.push(request.took, self.finish, gate, request, request.cost)

    def finish(self, gate, request, cost):
        if request.id not in gate.running or self.later(gate, self.finish, gate, request, cost):
            return
        del gate.running[request.id]
        for budget in request.counts_towards():
            self.truth[budget].admitted += cost - request.amount
            self.truth[budget].excess += max(0, cost - request.amount)
        seq = len(gate.folder.records) + 1
        used = gate.rights.end(request, cost, seq)
        owners = (ACCOUNT[:2], ("key", request.key))
        gate.folder.records.append(Record(seq, owners, request.day, cost, used, request.id))
        self.note(gate.id, "charges", request.id, cost, "of", request.amount)
        self.push(self.delay(), self.settle, gate.books)
        self.serve(gate)
        self.leave(gate)

    def batch_ends(self, ask):
        if not self.db.up:
            self.push(3, self.batch_ends, ask)
            return
        cost = int(self.rnd() * (ask.amount + 1))
        self.note(ask.id, "ends with", cost)
        for budget in ask.budgets:
            self.truth[budget].booked += cost
            self.truth[budget].admitted += cost
            self.db.rows[budget].reserved -= ask.amount
            self.db.rows[budget].used += cost
            self.db.check(budget)

    # Books

    def settle(self, books):
        folder = books.folder
        if books.dead or books.call or folder.closed or folder.machine.destroyed:
            return
        records = folder.records[folder.at : folder.at + 4]
        close = books.closing and folder.at + len(records) == len(folder.records)
        if records or close:
            last = close and (len(folder.records) or -1)
            books.machine = folder.machine
            books.call = self.call(books, "settle", folder.gate.id, records, last)

    def settled(self, call, result):
        books, (booked, closed) = call.owner, result
        if books.call is not call or books.dead:
            return
        folder, gate, books.call = books.folder, books.folder.gate, None
        folder.at = max(folder.at, booked)
        if not gate.dead:
            self.push(self.delay(), self.acknowledge, gate, booked)
        if closed:
            self.note(gate.id, "is closed")
            folder.closed = True
            self.bury(gate)
        else:
            self.settle(books)

    def acknowledge(self, gate, booked):
        if not self.later(gate, self.acknowledge, gate, booked):
            gate.rights.acknowledge(booked)

    def bury(self, gate):
        """End a process; what it sent may still arrive."""
        if gate.dead:
            return
        gate.dead = gate.books.dead = True
        for call in (gate.call, gate.books.call):
            if call:
                call.dropped, call.late = self.rnd() < 0.3, int(self.rnd() * 15)
        self.forget(gate)
        for request in gate.running.values():
            for budget in request.counts_towards():
                self.truth[budget].admitted -= request.amount
        for folder in self.folders:
            if folder.lock and folder.lock.owner is gate:
                folder.lock.dead = True
        self.gates.remove(gate)
        self.push(int(self.rnd() * POLL), self.look_after, gate.machine)

    # Notices

    def notify(self, holder, budget=None):
        for gate in self.gates:
            if gate.id == holder:
                for _ in range(2 if self.loss and self.rnd() < 0.15 else 1):
                    if self.rnd() >= self.loss:
                        late = int(self.rnd() * 30) if self.loss else 0
                        self.push(self.delay() + late, self.hear, gate, budget)

    def hear(self, gate, budget):
        if not self.later(gate, self.hear, gate, budget):
            gate.rights.notice(budget, self.now)
            self.pump(gate)


class World(Processes):
    """Everything that happens, in the order of its time."""

    def __init__(self, seed, rules, trace=None):
        self.rules, self.trace, self.exact = rules, trace, seed % 8 == 0
        rng = random.Random(seed)
        self.rnd = rng.random
        self.now, self.day, self.heap, self.n, self.ids = 0, 1, [], count(), count(1)
        self.truth, self.journaled, self.lost = defaultdict(Truth), {}, set()
        self.admitted = self.arrived = self.refused = self.events = 0
        limits = [rng.randint(3, 9), rng.randint(2, 12), None, rng.randint(3, 15)]
        if rng.random() < 0.4:
            limits[2] = rng.randint(3, 12)
        if not self.exact:
            more = rng.choice((0, 20, 90))
            limits = [limit and limit + rng.randint(0, more) for limit in limits]
        self.excessive = not self.exact and rng.random() < 0.5
        self.large = rng.random() < 0.5
        self.loss = 0 if self.exact else rng.choice((0, 0.3))
        self.patient = []  # waiting requests
        self.db = Database(self, limits)
        names = range(1 if self.exact else rng.randint(1, 3))
        self.machines = [Machine(name=f"m{i}", away=False, destroyed=False) for i in names]
        self.gates, self.folders = [], []
        for i in range(rng.randint(2 if self.exact else 1, 4)):
            self.start(self.machines[i % len(self.machines)])

    def note(self, *words):
        if self.trace is not None:
            self.trace.append(f"{int(self.now)} " + " ".join(map(short, words)))

    def push(self, delay, call, *args):
        heapq.heappush(self.heap, (self.now + delay, next(self.n), call, args))

    def delay(self):
        how = self.rnd()
        return 1 if how < 0.6 else 2 if how < 0.94 else 3 + int(self.rnd() * 4)

    def step(self):
        self.now, _, call, args = heapq.heappop(self.heap)
        self.events += 1
        call(*args)
        if self.patient and (not self.heap or self.heap[0][0] > self.now):
            self.watch()

    def until(self, end):
        while self.heap and self.heap[0][0] <= end:
            self.step()

    # Checks 5 and 8: is there enough, within reach?

    def reached(self, gate):
        alive = not gate.dead and not gate.stopped and not gate.machine.away and self.db.up
        return alive and gate.state in {"open", "leaving"} and not gate.rights.in_doubt

    def in_touch(self, gate, ticks, since):
        """Tell whether a gate has been in touch for so long after something happened."""
        return self.now - max(since, gate.reach) > ticks and self.reached(gate)

    def watch(self):
        reached = [gate for gate in self.gates if self.reached(gate)]
        there = {}
        for gate, request in self.patient:  # the oldest first: what suffices for it is not there
            enough = fair = gate in reached
            for budget in request.budgets if enough else ():
                if budget not in there:
                    idle = sum(each.rights.lease(budget).idle for each in reached)
                    there[budget] = self.db.row(budget).room + idle
                if there[budget] < request.amount:
                    enough = False
                    fair = fair and there[budget] + request.passed[budget] >= request.amount
            for budget in request.budgets if enough else ():
                there[budget] -= request.amount
            request.covered = (request.covered or self.now) if enough else None
            request.starved = (request.starved or self.now) if fair else None

    def write_off(self, machine, *, return_rights):
        self.note("write off", machine.name, "and return rights" if return_rights else "")
        for holder, of in self.db.machines.items():
            if of is machine and (self.db.holders[holder].live or return_rights):
                self.db.write_off(holder, return_rights=return_rights)
