"""A world that budgets over processes are tried in: time, processes, faults, and checks.

The decisions are the shipped ones; here is what a gateway does with them. Connections break,
answers and notices are lost, late or doubled, processes are killed or stop, machines burn.

What is checked, by number: docs/development/budgets-over-processes.md.
"""

import heapq
import random
from itertools import count
from types import SimpleNamespace as Record

from tests.simulation.database import ACCOUNT, POLL, Broken, Charge, Database, days, of_key

WAIT, RETRY = 100, 6  # ticks
T, B, GRACE, AN_ANSWER, FAIR = 50, 40, 25, 12, 30


class Process:
    """A gateway; `rights` is all that it decides by. Its journal outlives it."""

    dead = stopped = False
    state, call, wake = "new", None, -1
    limited = deleted = frozenset()

    def __init__(self, name, machine, world):
        self.id, self.machine, self.today, self.reach = name, machine, days(world.day), world.now
        timing = world.rules.Timing(wait=WAIT, retry=RETRY, poll=POLL, lease=20)
        self.rights, self.running, self.backlog = world.rules.Rights(timing), {}, []
        self.journal = Record(records=[], at=0, closed=False, process=self, taken_by=None)
        self.books = Books(self, self.journal)

    @property
    def reached(self):
        away = self.dead or self.stopped or self.machine.away or self.rights.in_doubt
        return not away and self.state in {"open", "leaving"}


class Request(Record):
    """A claim, with what the checks know of it."""

    amounts, short, covered, starved = {}, frozenset(), None, None


class Books:
    """Who settles a journal: its own process, or one that takes it over, or a command."""

    call = None

    def __init__(self, process, journal, *, closing=False):
        self.process, self.journal, self.closing = process, journal, closing
        self.machine = journal.process.machine

    @property
    def dead(self):
        return bool(self.process) and self.process.dead


class World:
    """Everything that happens, in the order of its time."""

    def __init__(self, seed, rules, trace=None, database=Database):
        self.rules, self.trace = rules, trace
        self.exact, self.crowd = seed % 8 == 0, seed % 8 == 4
        rng = random.Random(seed)
        self.rnd = rng.random
        self.now, self.day, self.heap, self.n, self.ids = 0, 1, [], count(), count(1)
        self.admitted = self.arrived = self.refused = self.events = self.watched = 0
        limits = [rng.randint(3, 9), rng.randint(2, 12), None, rng.randint(3, 15)]
        limits[2] = rng.randint(3, 12) if rng.random() < 0.4 else None
        more = 0 if self.exact else 5 if self.crowd else rng.choice((0, 20, 90))
        limits = [limit and limit + rng.randint(0, more) for limit in limits]
        self.excessive, self.large = rng.random() < 0.5, rng.random() < 0.5
        self.loss = 0 if self.exact else rng.choice((0, 0.3))
        self.waiting = []  # every request that waits, with its process, by age
        self.db = database(self, limits)
        if limits[2] is not None:
            self.db.row(of_key("K1", days(0)))
        names = range(1 if self.exact else rng.randint(1, 3))
        self.machines = [Record(name=f"m{i}", away=False, destroyed=False) for i in names]
        self.processes, self.journals, self.lost = [], [], set()
        for i in range(rng.randint(2 if self.exact else 1, 4)):
            self.start(self.machines[i % len(self.machines)])

    def note(self, *words):
        if self.trace is not None:
            self.trace.append(f"{int(self.now)} " + " ".join(map(short, words)))

    # Time

    def push(self, delay, call, *args):
        heapq.heappush(self.heap, (self.now + delay, next(self.n), call, args))

    def delay(self):
        how = self.rnd()
        return 1 if how < 0.6 else 2 if how < 0.94 else 3 + int(self.rnd() * 4)

    def step(self):
        self.now, _, call, args = heapq.heappop(self.heap)
        self.events += 1
        call(*args)
        if self.waiting and self.now >= self.watched + 3:
            self.watched = self.now
            self.watch()

    def until(self, end):
        while self.heap and self.heap[0][0] <= end:
            self.step()

    def tell(self, delay, process, call, *args):
        """Have something reach a process: later if it is stopped, never if it is dead."""
        self.push(delay, self.reach, process, call, args)

    def reach(self, process, call, args):
        if process.stopped:
            process.backlog.append((process, call, args))
        elif not process.dead:
            call(process, *args)
            self.pump(process)

    # Processes

    def start(self, machine):
        process = Process(f"h{next(self.ids)}", machine, self)
        self.note("start", process.id, "on", machine.name)
        self.processes.append(process)
        self.journals.append(process.journal)
        self.pump(process)
        self.push(POLL // 2, self.look_after, machine)

    def look_after(self, machine):
        """Let a process take over what others on its machine have left, as their locks say."""
        of = [each for each in self.processes if each.machine is machine and not each.stopped]
        for process in [each for each in of if each.state == "open"][:1]:
            for journal in self.journals:
                if journal.process.machine is machine and self.is_free(journal):
                    self.take_over(journal, process)

    def is_free(self, journal):
        locked = journal.taken_by and not journal.taken_by.dead
        gone = journal.process.dead and not journal.process.machine.destroyed
        return gone and not locked and not journal.closed

    def take_over(self, journal, process):
        self.note(process.id if process else "the command", "takes over", journal.process.id)
        journal.taken_by = Books(process, journal, closing=True)
        self.push(self.delay(), self.settle, journal.taken_by)

    def pump(self, process):
        """Begin the next operation of a process, or be back when there may be one."""
        if process.dead or process.stopped or process.state == "off":
            return
        operation = process.rights.next_operation(self.now, process.today)
        if operation is not None:
            process.call = self.call(process, operation)
        elif process.rights.lane is None:
            wake = max(self.now + 1, process.rights.wakes_at())
            if not self.now < process.wake <= wake:
                process.wake = wake
                self.push(wake - self.now, self.pump, process)

    def call(self, owner, *args):
        call = Record(owner=owner, args=args, late=0, dropped=False)
        self.push(self.delay(), self.execute, call)
        return call

    def execute(self, call):
        owner, args = call.owner, call.args
        if call.late and not call.dropped:
            self.push(call.late, self.execute, call)
            call.late = 0
        elif call.dropped:
            pass
        elif not self.db.up or (owner.call is call and not owner.dead and owner.machine.away):
            self.break_off(owner, call)
        elif isinstance(owner, Books):
            self.push(self.delay(), self.settled, owner, call, *self.db.settle(*args))
        else:
            if args[0].name != "poll":
                self.note(owner.id, *args)
            answer, read = self.db.operate(owner.id, owner.machine, *args)
            if args[0].name != "poll":
                self.note(owner.id, "->", answer)
            self.tell(self.delay(), owner, self.answer, call, answer, read)

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

    def forget(self, process):
        self.note(process.id, "503", *(request.id for request in process.rights.forget()))
        self.waiting = [pair for pair in self.waiting if pair[0] is not process]

    def answer(self, process, call, answer, read):
        if process.call is call:
            process.call = None
            if read is not None:
                process.state = "open" if process.state == "new" else process.state
                process.limited, process.deleted = read
                self.renew(process)
        self.decided(process, *process.rights.answered(call.args[0], answer))
        if process.rights.cut_off and process.state != "off":
            self.note(process.id, "is cut off")
            process.state = "off"
            self.forget(process)
        self.leave(process)

    def decided(self, process, admitted, refused=()):
        if refused:
            self.watch()
        over = {request.id for request in (*admitted, *refused)}
        if over:
            self.waiting = [pair for pair in self.waiting if pair[1].id not in over]
        for request in admitted:
            self.admit(process, request)
        for request in refused:
            self.refuse(process, request)

    def refuse(self, process, request):
        self.note(process.id, "402", request.id)
        self.refused += 1
        early = self.now - request.since < WAIT
        checks = ((5, request.covered, AN_ANSWER if early else T), (8, request.starved, FAIR))
        for number, since, longest in checks:
            if since is not None and self.now - since > longest:
                raise Broken(f"{number}: {process.id} refuses {request.id}, covered since {since}")

    def leave(self, process):
        done = not process.running and not process.rights.waiting
        if process.state in {"off", "leaving"} and done and not process.books.closing:
            if process.rights.held():
                raise Broken(f"4: {process.id} holds something with nothing running")
            process.books.closing = True
            self.push(0, self.settle, process.books)

    def bury(self, process):
        """End a process; what it sent may still arrive."""
        self.note("kill -9", process.id)
        for call in (process.call, process.books.call):
            if call:
                call.dropped, call.late = self.rnd() < 0.3, int(self.rnd() * 15)
        self.forget(process)
        process.dead = True
        for request in process.running.values():
            for budget in request.counts:
                self.db.truth[budget].admitted -= request.amount
        self.processes.remove(process)
        self.push(int(self.rnd() * POLL), self.look_after, process.machine)

    def notify(self, holder, budget=None):
        """Send a notice, which may be lost, doubled or late."""
        for process in [each for each in self.processes if each.id == holder]:
            for _ in range(2 if self.loss and self.rnd() < 0.15 else 1):
                if self.rnd() >= self.loss:
                    late = int(self.rnd() * 30) if self.loss else 0
                    self.tell(self.delay() + late, process, self.hear, budget)

    def hear(self, process, budget):
        process.rights.notice(budget, self.now)

    # Requests

    def renew(self, process):
        """Have waiting requests follow limits and windows, as far as their process knows."""
        for request in [*process.rights.waiting]:
            if request.key in process.deleted:
                self.hang_up(process, request)
            elif (amounts := self.amounts(process, request)) != request.amounts:
                request.amounts, request.covered, request.starved = amounts, None, None
                request.passed.clear()

    def amounts(self, process, request):
        request.counts = (ACCOUNT, of_key(request.key, process.today)) if request.amount else ()
        request.day = process.today
        limited = request.counts if request.key in process.limited else request.counts[:1]
        return dict.fromkeys(limited, request.amount)

    def hang_up(self, process, request):
        process.rights.withdraw(request)
        self.waiting.remove((process, request))

    def arrive(self, process, request):
        if request.key in process.deleted or process.state != "open":
            return
        request.amounts = self.amounts(process, request)
        if process.rights.begin(request, self.now):
            self.admit(process, request)
        else:
            self.waiting.append((process, request))

    def admit(self, process, request):
        if request.reserves:
            return
        self.note(process.id, "admits", request.id, request.key, request.amount)
        self.admitted += 1
        for at, older in self.waiting:
            both = (self.in_touch(each, GRACE, older.since) for each in (at, process))
            if older.since + AN_ANSWER < request.since and all(both):
                for budget in older.short.intersection(request.amounts):
                    older.passed[budget] = older.passed.get(budget, 0) + request.amount
        self.check_limits(process, request)
        process.running[request.id] = request
        self.tell(request.took, process, self.finish, request, request.cost)

    def check_limits(self, process, request):
        """Checks 1 and 6 of a request that begins."""
        if request.key in self.db.deleted:
            self.late(process, self.db.deleted[request.key], "that its key is deleted")
        for budget in request.amounts:
            if process.rights.lease(budget).idle < 0:
                raise Broken(f"1: {process.id} holds more than its rights of {budget}")
        for budget in request.counts:
            truth, row = self.db.truth[budget], self.db.rows.get(budget)
            truth.admitted += request.amount
            if row is None or row.limit is None:
                continue
            if budget not in request.amounts:
                truth.allowed += request.amount
                self.late(process, truth.limited_since, f"the limit of {budget}")
            elif truth.over_since is not None:
                self.late(process, truth.over_since, f"that {budget} is over its limit")
            bound = max(row.limit, truth.floor) + truth.excess + truth.allowed
            if truth.admitted + row.reserved > bound:
                raise Broken(f"1: {truth.admitted} + {row.reserved} of {budget}, bound {bound}")

    def late(self, process, since, what):
        if self.in_touch(process, B, since):
            raise Broken(f"6: {process.id} does not know {what}")

    def finish(self, process, request, cost):
        if request.id not in process.running:
            return
        del process.running[request.id]
        for budget in request.counts:
            self.db.truth[budget].admitted += cost - request.amount
            self.db.truth[budget].excess += max(0, cost - request.amount)
        records = process.journal.records
        used = process.rights.used_by(request, dict.fromkeys(request.amounts, cost))
        process.rights.end(request, used, len(records) + 1)
        owners = dict.fromkeys((ACCOUNT[:2], ("key", request.key)), (cost, 0))
        more = request.id, request.key, cost
        records.append(Charge(len(records) + 1, owners, request.day, used, *more))
        self.note(process.id, "charges", request.id, cost, "of", request.amount)
        self.push(self.delay(), self.settle, process.books)
        self.decided(process, process.rights.serve())
        self.leave(process)

    # Books

    def settle(self, books):
        journal = books.journal
        if books.dead or books.call or journal.closed or books.machine.destroyed:
            return
        records = journal.records[journal.at : journal.at + 4]
        last = books.closing and journal.at + len(records) == len(journal.records)
        if records or last:
            close = len(journal.records) if last else None
            books.call = self.call(books, journal.process.id, records, close)

    def settled(self, books, call, booked, closed):
        if books.call is not call or books.dead:
            return
        journal, process, books.call = books.journal, books.journal.process, None
        journal.at = max(journal.at, booked)
        self.tell(self.delay(), process, self.acknowledge, booked)
        if not closed:
            self.settle(books)
            return
        self.note(process.id, "is closed")
        journal.closed = True
        if not process.dead:
            self.bury(process)

    def acknowledge(self, process, booked):
        process.rights.acknowledge(booked)

    # Checks 5 and 8: is there enough, within reach?

    def in_touch(self, process, ticks, since):
        """Tell whether a process has been in touch for so long after something happened."""
        return self.now - max(since, process.reach) > ticks and self.db.up and process.reached

    def watch(self):
        reached = {process for process in self.processes if self.db.up and process.reached}
        there = {}
        for process, request in self.waiting:  # the oldest first: what it may take is not there
            enough = fair = process in reached
            for budget in request.amounts if enough else ():
                if budget not in there:
                    idle = sum(each.rights.lease(budget).idle for each in reached)
                    there[budget] = self.db.row(budget).room + idle
                if there[budget] < request.amount:
                    enough = False
                    fair &= there[budget] + request.passed.get(budget, 0) >= request.amount
            for budget in request.amounts if enough else ():
                there[budget] -= request.amount
            request.covered = (request.covered or self.now) if enough else None
            request.starved = (request.starved or self.now) if fair and request.passed else None


def short(word):
    """Return a value as a trace shows it."""
    if hasattr(word, "waited"):
        return f"{word.id}={max(word.amounts.values(), default=0)}" + " at last" * word.last
    if hasattr(word, "window"):
        return word.id + word.window[7:10]
    if isinstance(word, dict):
        return "{" + ", ".join(f"{short(key)}: {short(of)}" for key, of in word.items()) + "}"
    if hasattr(word, "returned"):
        return " ".join(map(short, (word.name, word.op, word.returned or "", *word.asks)))
    if names := getattr(word, "__match_args__", getattr(word, "_fields", ())):
        values = {name: getattr(word, name) for name in names if name not in {"recalled", "short"}}
        return " ".join(f"{name} {short(of)}" for name, of in values.items() if of or of == 0)
    return f"({' '.join(map(short, word))})" if isinstance(word, (list, tuple)) else str(word)
