package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// counter is a key that goes up by one with each acknowledged step: it may
// stand higher by the steps whose end is unknown, never lower.
type counter struct {
	tally
	run  *run
	name string
}

func newCounter(r *run, name string) *counter { return &counter{run: r, name: name} }

func (c *counter) key() string { return c.run.space + "count/" + c.name }

func (c *counter) check() {
	value := 0
	if kvs := c.run.read(c.key()).Kvs; len(kvs) > 0 {
		value, _ = strconv.Atoi(string(kvs[0].Value))
	}
	if value < c.Acknowledged || value > c.Acknowledged+c.Unknown {
		c.run.fault("%s: the count is %d after %d acknowledged and %d unknown steps",
			c.name, value, c.Acknowledged, c.Unknown)
	}
	if c.Acknowledged == 0 {
		c.run.fault("%s: nothing was acknowledged", c.name)
	}
}

// errOvertaken says that the step certainly was not made.
var errOvertaken = errors.New("no longer the owner")

// step adds one, only if a condition still holds. The count is read and
// written apart: two owners at once would lose a step.
func (c *counter) step(ctx context.Context, owner clientv3.Cmp) error {
	read, err := c.run.client.Get(ctx, c.key())
	if err != nil {
		return errOvertaken
	}
	value := 0
	if len(read.Kvs) > 0 {
		value, _ = strconv.Atoi(string(read.Kvs[0].Value))
	}
	done, err := c.run.client.Txn(ctx).If(owner).Then(clientv3.OpPut(c.key(), fmt.Sprint(value+1))).Commit()
	if err != nil {
		return err
	}
	if !done.Succeeded {
		return errOvertaken
	}
	return nil
}

// session runs a task within sessions, a new one whenever one ends.
func (c *counter) session(ctx context.Context, task func(context.Context, *concurrency.Session) error) {
	for ctx.Err() == nil {
		session, err := concurrency.NewSession(c.run.client, concurrency.WithTTL(5), concurrency.WithContext(ctx))
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, 2*patience)
			err := task(short, session)
			cancel()
			if err != nil {
				break
			}
		}
		// The session's own context may be over: revoking needs another.
		short, cancel := context.WithTimeout(context.Background(), patience)
		_, _ = c.run.client.Revoke(short, session.Lease())
		cancel()
		session.Orphan()
	}
}

// count counts a step unless it certainly was not made.
func (c *counter) count(err error) error {
	if !errors.Is(err, errOvertaken) {
		c.add(err)
	}
	return err
}

func (c *counter) underMutex(ctx context.Context) {
	c.session(ctx, func(ctx context.Context, session *concurrency.Session) error {
		mutex := concurrency.NewMutex(session, c.run.space+"mutex")
		if err := mutex.Lock(ctx); err != nil {
			return err
		}
		if err := c.count(c.step(ctx, mutex.IsOwner())); err != nil {
			return err
		}
		return mutex.Unlock(ctx)
	})
}

func (c *counter) asLeader(ctx context.Context) {
	c.session(ctx, func(ctx context.Context, session *concurrency.Session) error {
		election := concurrency.NewElection(session, c.run.space+"election")
		if err := election.Campaign(ctx, fmt.Sprintf("%x", session.Lease())); err != nil {
			return err
		}
		leading := clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev())
		if err := c.count(c.step(ctx, leading)); err != nil {
			return err
		}
		if err := election.Proclaim(ctx, "done"); err != nil {
			return err
		}
		return election.Resign(ctx)
	})
}

func (c *counter) inTransaction(ctx context.Context) {
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(context.Background(), patience)
		_, err := concurrency.NewSTM(c.run.client, func(stm concurrency.STM) error {
			value, _ := strconv.Atoi(stm.Get(c.key()))
			stm.Put(c.key(), fmt.Sprint(value+1))
			return nil
		}, concurrency.WithAbortContext(short), concurrency.WithIsolation(concurrency.SerializableSnapshot))
		cancel()
		c.add(err)
	}
}
