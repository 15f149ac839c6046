"""The stock Python client at its daily work while members are killed: puts, a
watch, a kept lease, transactions and locks. At the end everything that was
acknowledged must be there.

aetcd speaks to one member; what moves on to the next one is here.
"""

import argparse
import asyncio
import json
import os
import sys
import time

import aetcd

PATIENCE = 5  # Seconds after which the end of a request counts as unknown.
RECOVERY = 60  # Seconds the cluster has to serve again after the work.


class Tally:
    """What was acknowledged, and what may or may not have happened."""

    def __init__(self):
        self.acknowledged = 0
        self.unknown = 0

    def report(self):
        return {"acknowledged": self.acknowledged, "unknown": self.unknown}


class Store:
    """The members, and a client of the one in use."""

    def __init__(self, endpoints):
        self.endpoints = [endpoint.rsplit(":", 1) for endpoint in endpoints]
        self.current = 0
        self.clients = {}

    def client(self):
        if self.current not in self.clients:
            host, port = self.endpoints[self.current]
            options = {"grpc.keepalive_time_ms": 6000, "grpc.keepalive_timeout_ms": 3000}
            self.clients[self.current] = aetcd.Client(host, int(port), timeout=PATIENCE, options=options)
        return self.clients[self.current]

    def avoid(self, client):
        """Moves on, unless somebody has."""
        if self.clients.get(self.current) is client:
            self.current = (self.current + 1) % len(self.endpoints)

    async def once(self, act):
        """Does something that must not be repeated."""
        client = self.client()
        try:
            return await asyncio.wait_for(act(client), 2 * PATIENCE)
        except Exception:
            self.avoid(client)
            raise

    async def until_done(self, act):
        """Does something that may be repeated."""
        deadline = time.monotonic() + RECOVERY
        while True:
            try:
                return await self.once(act)
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def close(self):
        for client in self.clients.values():
            await client.close()


class Run:
    """One run, in a key space of its own."""

    def __init__(self, store):
        self.store = store
        self.space = f"peer-python-{os.getpid()}-{time.time_ns()}/".encode()
        self.faults = []
        self.over = False
        self.puts = Tally()
        self.acked = {}
        self.counters = {name: Tally() for name in ("transaction", "lock")}
        self.seen = {}
        self.newest = 0
        self.renewals = 0

    def fault(self, text):
        self.faults.append(text)

    async def writer(self, number):
        n = 0
        while not self.over:
            key = self.space + f"puts/{number}/{n:06}".encode()
            n += 1
            try:
                put = await self.store.once(lambda c: c.put(key, b"x"))
            except Exception:
                self.puts.unknown += 1
                await asyncio.sleep(0.05)
                continue
            self.puts.acknowledged += 1
            self.acked[key] = put.header.revision

    async def step(self, name):
        """Adds one to a counter, if nobody else does in between."""
        key = self.space + b"count/" + name.encode()
        tally = self.counters[name]
        read = await self.store.until_done(lambda c: c.get(key))
        value, revision = (int(read.value), read.mod_revision) if read else (0, 0)

        async def swap(client):
            of = client.transactions
            return await client.transaction(
                compare=[of.mod(key) == revision], success=[of.put(key, str(value + 1).encode())], failure=[]
            )

        try:
            done, _ = await self.store.once(swap)
        except Exception:
            tally.unknown += 1
            return
        tally.acknowledged += done

    async def in_transactions(self):
        while not self.over:
            await self.step("transaction")

    async def under_lock(self):
        while not self.over:
            client = self.store.client()
            lock = client.lock(self.space + b"lock", ttl=5)
            try:
                if await asyncio.wait_for(lock.acquire(timeout=PATIENCE), 2 * PATIENCE):
                    await self.step("lock")
                    await asyncio.wait_for(lock.release(), PATIENCE)
            except Exception:
                self.store.avoid(client)
                await asyncio.sleep(0.1)

    async def keeper(self, lease):
        while not self.over:
            await self.store.until_done(lambda c: c.refresh_lease(lease))
            self.renewals += 1
            await asyncio.sleep(2)

    async def watcher(self, start):
        """Collects events, from where it stopped whenever the stream ends."""
        while True:
            client = self.store.client()
            try:
                watch = await asyncio.wait_for(
                    client.watch_prefix(self.space, start_revision=max(start, self.newest + 1)), PATIENCE
                )
                async for event in watch:
                    self.take(event.kv)
            except asyncio.CancelledError:
                raise
            except Exception:
                self.store.avoid(client)
            await asyncio.sleep(0.1)

    def take(self, kv):
        if kv.mod_revision < self.newest:
            self.fault(f"the watch saw revision {kv.mod_revision} after {self.newest}")
        self.newest = kv.mod_revision
        if (kv.key, kv.mod_revision) in self.seen:
            self.fault(f"the watch saw {kv.key} at {kv.mod_revision} twice")
        self.seen[kv.key, kv.mod_revision] = True

    async def work(self, seconds):
        first = await self.store.until_done(lambda c: c.put(self.space + b"first", b""))
        lease = (await self.store.until_done(lambda c: c.lease(30))).id
        leased = self.space + b"lease"
        await self.store.until_done(lambda c: c.put(leased, b"", lease=lease))

        watcher = asyncio.create_task(self.watcher(first.header.revision + 1))
        tasks = [self.writer(n) for n in range(3)]
        tasks += [self.in_transactions(), self.in_transactions(), self.under_lock(), self.under_lock()]
        tasks += [self.keeper(lease)]
        tasks = [asyncio.create_task(task) for task in tasks]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        self.over = True
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BaseException):
                self.fault(f"a task ended: {result!r}")

        last = await self.store.until_done(lambda c: c.put(self.space + b"last", b""))
        await self.check(watcher, last.header.revision)
        if await self.store.until_done(lambda c: c.get(leased)) is None:
            self.fault("the key of a kept lease is gone")
        await self.store.until_done(lambda c: c.revoke_lease(lease))
        if await self.store.until_done(lambda c: c.get(leased)) is not None:
            self.fault("a key outlives its lease")

    async def check(self, watcher, last):
        found = await self.store.until_done(lambda c: c.get_prefix(self.space + b"puts/"))
        found = {kv.key: kv.mod_revision for kv in found}
        for key, revision in self.acked.items():
            if key not in found:
                self.fault(f"acknowledged key {key} is lost")
            elif found[key] != revision:
                self.fault(f"key {key} was acknowledged at revision {revision} and is at {found[key]}")
        for name, tally in self.counters.items():
            key = self.space + b"count/" + name.encode()
            read = await self.store.until_done(lambda c: c.get(key))
            value = int(read.value) if read else 0
            if not tally.acknowledged <= value <= tally.acknowledged + tally.unknown:
                self.fault(f"{name}: the count is {value} after {tally.report()}")
            if tally.acknowledged == 0:
                self.fault(f"{name}: nothing was acknowledged")

        deadline = time.monotonic() + RECOVERY
        while self.newest < last and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        watcher.cancel()
        if self.newest < last:
            self.fault(f"the watch stands at revision {self.newest}, the store at {last}")
        for key, revision in self.acked.items():
            if (key, revision) not in self.seen:
                self.fault(f"the watch missed {key} at revision {revision}")

    def report(self):
        counters = {name: tally.report() for name, tally in self.counters.items()}
        return {
            "client": "python",
            "puts": self.puts.report(),
            **counters,
            "events": len(self.seen),
            "renewals": self.renewals,
            "faults": self.faults,
        }


async def main():
    parser = argparse.ArgumentParser(description="stock Python client at work")
    parser.add_argument("--endpoints", default="127.0.0.1:2379", help="members, separated by commas")
    parser.add_argument("--seconds", type=int, default=10, help="how long to work")
    parser.add_argument("--out", help="file for the report, in JSON")
    options = parser.parse_args()

    store = Store(options.endpoints.split(","))
    run = Run(store)
    try:
        await run.work(options.seconds)
    except Exception as error:
        run.fault(f"the cluster does not serve: {error!r}")
    text = json.dumps(run.report())
    if options.out:
        with open(options.out, "w") as out:
            out.write(text + "\n")
    print(text)
    if run.faults:
        print("FAILED:", run.faults[0])
        return 1
    print("OK: every acknowledged write is present")
    await store.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
