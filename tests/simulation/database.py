"""The rows of budgets, leases and holders, as transactions change them, and what holds of each row.

Decisions are the shipped ones; what is here stands for SQL. A method is one transaction.
"""

from collections import defaultdict, namedtuple
from datetime import date
from functools import cache
from types import SimpleNamespace as Record

from tests.support.seams.accounting import Reset, leases

POLL = 12  # ticks
ACCOUNT = leases.BudgetId("account", "A")
FIRST_DAY = date(2026, 11, 27).toordinal()
Charge = namedtuple("Charge", (*leases.Charge._fields, "id", "key", "cost"))  # noqa: PYI024 - built from another


class Broken(Exception):
    """A check failed; its number comes first."""


@cache
def days(number):
    return date.fromordinal(FIRST_DAY + number).isoformat()


@cache
def of_key(key, day):
    """Return K0's limit of a day, K1's for ever, which may be none, or K2's of a week."""
    reset = {"K0": Reset.DAILY, "K1": None, "K2": Reset.WEEKLY}[key]
    return leases.BudgetId("key", key, leases.window_of(reset, date.fromisoformat(day)))


def truth():
    """Return what the checks know of a budget, and no process does."""
    zero = dict.fromkeys(("admitted", "allowed", "booked", "excess", "floor", "limited_since"), 0)
    return Record(**zero, over_since=None)


class Database:
    def __init__(self, world, limits):
        self.world, self.rules, self.up = world, world.rules, True
        self.keys = dict(zip(("K0", "K1", "K2"), limits[1:], strict=True))
        self.rows, self.truth = {ACCOUNT: self.rules.BudgetRow(limits[0])}, defaultdict(truth)
        self.holders, self.machines, self.leases, self.deleted = {}, {}, defaultdict(dict), {}
        self.generations, self.reservations = set(), set()

    def row(self, budget):
        if budget not in self.rows:
            truth = self.truth[budget]
            truth.limited_since = self.world.now
            # What is used is the sum of its days in the books.
            self.rows[budget] = self.rules.BudgetRow(self.keys[budget.id], truth.booked)
        return self.rows[budget]

    def looked_at(self, holder, budgets):
        """Return rows with what others want of them."""
        found = {budget: self.row(budget) for budget in budgets}
        for budget, row in found.items():
            row.wants = [
                lease.want
                for other, lease in self.leases[budget].items()
                if lease.want and lease.until >= self.world.now
                if other != holder and self.holders[other].live
            ]
        return found

    def granted(self, holder):
        return {budget: of[holder].granted for budget, of in self.leases.items() if holder in of}

    def lease(self, holder, budget):
        return self.leases[budget].setdefault(holder, Record(granted=0, want=None, until=-1))

    def operate(self, holder, machine, operation):
        """Return the answer, and for a poll what else a process reads: limits and deleted keys."""
        if operation.name == "register" and holder not in self.holders:
            self.holders[holder], self.machines[holder] = self.rules.HolderRow(), machine
        mine = self.holders[holder]
        standing = self.rules.standing(mine, operation)
        if standing is not self.rules.Standing.MINE:
            return standing, None
        if operation.name in {"register", "poll"}:
            rows = self.looked_at(holder, self.granted(holder))
            recalled = [budget for budget, row in rows.items() if row.recalled]
            limited = {key for key, limit in self.keys.items() if limit is not None}
            return self.rules.Polled(recalled), (limited, {*self.deleted})
        mine.op += 1
        if operation.name == "fence":
            return self.rules.Fenced(mine.op, mine.booked_seq, self.granted(holder)), None
        self.give_back(holder, operation.returned)
        return (standing if operation.name == "give_back" else self.grant(holder, operation)), None

    def give_back(self, holder, amounts):
        for budget, amount in amounts.items():
            self.row(budget).leased -= amount
            self.lease(holder, budget).granted -= amount
            self.check(budget)

    def grant(self, holder, operation):
        world, asked = self.world, operation.asks
        if before := [ask for ask in asked if ask.id in self.reservations]:
            asked = [ask for ask in asked if ask not in before]
            operation = operation._replace(asks=asked)
        rows = self.looked_at(holder, {budget for ask in asked for budget in ask.amounts})
        live = sum(row.live for row in self.holders.values()) or 1
        done = self.rules.grant(rows, operation, live, world.now)
        given = dict(done.got)
        for ask in asked:
            if ask.reserves and ask.id in done.fit:
                self.reservations.add(ask.id)
                for budget, amount in ask.amounts.items():
                    rows[budget].reserved += amount
                    given[budget] = amount
                world.push(5 + int(world.rnd() * 40), self.batch_ends, ask)
        done.fit.extend(ask.id for ask in before)
        for budget in sorted(rows):
            if budget in given or budget in done.wants or holder in self.leases[budget]:
                lease = self.lease(holder, budget)
                rows[budget].leased += done.got.get(budget, 0)
                lease.granted += done.got.get(budget, 0)
                lease.want, lease.until = done.wants.get(budget), world.now + 2 * POLL
                for other, its in self.leases[budget].items() if lease.want else ():
                    if other != holder and its.granted > 0:
                        world.notify(other, budget)
            self.check(budget, given.get(budget, 0))
        return done

    def settle(self, holder, records, close):
        """Book a group; release the leases if it is the last, of a holder that has ended."""
        if holder not in self.holders:  # it never came to register, and must not afterwards
            self.holders[holder] = self.rules.HolderRow(live=False)
        mine, granted = self.holders[holder], self.granted(holder)
        booked = self.rules.settle(mine.booked_seq, records, self.rows, granted)
        for record in booked.charges:
            if record.id in self.generations:
                raise Broken(f"3: {record.id} is settled twice")
            self.generations.add(record.id)
            for budget in (ACCOUNT, of_key(record.key, record.day)):
                self.truth[budget].booked += record.cost
            mine.booked_seq = record.seq
        for budget, cost in booked.used.items():
            self.row(budget).used += cost
        for budget, right in booked.rights.items():
            self.row(budget).leased -= right
            self.leases[budget][holder].granted -= right
        closed = close is not None and mine.booked_seq >= close
        if closed:
            self.end(holder, self.granted(holder))
        for record in booked.charges:
            self.check(ACCOUNT)
            self.check(of_key(record.key, record.day))
        return mine.booked_seq, closed

    def end(self, holder, returned):
        row = self.holders[holder]
        row.live, row.epoch = False, row.epoch + 1
        for budget in returned:
            self.row(budget).leased -= self.leases[budget].pop(holder).granted
            self.check(budget)

    def write_off(self, machine, *, return_rights):
        for holder in [each for each, of in self.machines.items() if of is machine]:
            granted = self.granted(holder)
            for budget, amount in granted.items() if return_rights else ():
                self.truth[budget].allowed += max(0, amount)
            self.end(holder, granted if return_rights else {})  # it may have spent them

    def batch_ends(self, ask):
        if not self.up:
            self.world.push(3, self.batch_ends, ask)
            return
        share = self.world.rnd()
        for budget, amount in ask.amounts.items():
            cost = int(share * (amount + 1))
            self.truth[budget].booked += cost
            self.truth[budget].admitted += cost
            self.row(budget).reserved -= amount
            self.row(budget).used += cost
            self.check(budget)

    def set_limit(self, budget, limit):
        row, truth = self.row(budget), self.truth[budget]
        if limit is not None and (row.limit is None or limit < row.limit):
            truth.floor = row.used + row.reserved + row.leased
            if row.limit is None:  # what runs without a right of it comes on top
                truth.limited_since = self.world.now
                truth.allowed += max(0, truth.admitted - truth.booked)
        row.limit = limit
        self.check(budget)

    def check(self, budget, given=0):
        """Checks 1 and 7 of a row that changed."""
        row, truth = self.rows.get(budget), self.truth[budget]
        if row is None:
            return
        amounts = [lease.granted for lease in self.leases[budget].values()]
        if sum(amounts) != row.leased or min(amounts, default=0) < 0:
            raise Broken(f"1: leased {row.leased} of {budget}, leases {amounts}")
        if row.used != truth.booked:
            raise Broken(f"7: used {row.used} of {budget}, booked {truth.booked}")
        if row.limit is None or row.used + row.reserved + row.leased <= row.limit:
            truth.over_since = None
        elif given:
            raise Broken(f"1: {row} of {budget} after a grant")
        elif truth.over_since is None:
            truth.over_since = self.world.now
