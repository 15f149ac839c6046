package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// puts writes keys that are written once.
type puts struct {
	tally
	run *run
	// acked holds the revision of each acknowledged key; guarded by tally.
	acked map[string]int64
}

func newPuts(r *run) *puts { return &puts{run: r, acked: map[string]int64{}} }

func (p *puts) prefix() string { return p.run.space + "puts/" }

func (p *puts) work(ctx context.Context, writer int) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("%s%d/%06d", p.prefix(), writer, n)
		response, err := p.run.put(context.Background(), key, fmt.Sprint(n))
		if p.add(err) {
			p.Lock()
			p.acked[key] = response.Header.Revision
			p.Unlock()
		}
	}
}

func (p *puts) check() {
	found := map[string]int64{}
	for _, kv := range p.run.read(p.prefix(), clientv3.WithPrefix()).Kvs {
		found[string(kv.Key)] = kv.ModRevision
	}
	for key, revision := range p.acked {
		switch got, ok := found[key]; {
		case !ok:
			p.run.fault("acknowledged key %s is lost", key)
		case got != revision:
			p.run.fault("key %s was acknowledged at revision %d and is at %d", key, revision, got)
		}
	}
	if len(found) > p.Acknowledged+p.Unknown {
		p.run.fault("%d keys were found, %d were written", len(found), p.Acknowledged+p.Unknown)
	}
}

// watch collects the events of the puts, each of which must come once.
type watch struct {
	run    *run
	stop   context.CancelFunc
	done   chan struct{}
	mutex  sync.Mutex
	seen   map[string]int64
	newest int64
}

func newWatch(r *run, from int64) *watch {
	ctx, stop := context.WithCancel(context.Background())
	w := &watch{run: r, stop: stop, done: make(chan struct{}), seen: map[string]int64{}}
	events := r.client.Watch(clientv3.WithRequireLeader(ctx), r.space, clientv3.WithPrefix(), clientv3.WithRev(from))
	go w.collect(ctx, events, from)
	return w
}

func (w *watch) collect(ctx context.Context, events clientv3.WatchChan, from int64) {
	defer close(w.done)
	for {
		for response := range events {
			for _, event := range response.Events {
				w.take(event)
				from = event.Kv.ModRevision + 1
			}
		}
		// The client ends a watch when its member has no leader; users of it
		// start again where it stopped.
		if ctx.Err() != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
		events = w.run.client.Watch(clientv3.WithRequireLeader(ctx), w.run.space, clientv3.WithPrefix(), clientv3.WithRev(from))
	}
}

func (w *watch) take(event *clientv3.Event) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	key, revision := string(event.Kv.Key), event.Kv.ModRevision
	if revision < w.newest {
		w.run.fault("the watch saw revision %d after %d", revision, w.newest)
	}
	w.newest = revision
	id := fmt.Sprintf("%s@%d", key, revision)
	if _, twice := w.seen[id]; twice {
		w.run.fault("the watch saw %s twice", id)
	}
	w.seen[id] = revision
}

// check waits for the last revision and holds the events against the puts.
func (w *watch) check(p *puts, last int64) {
	for deadline := time.Now().Add(recovery); w.at() < last; {
		if time.Now().After(deadline) {
			w.run.fault("the watch stands at revision %d, the store at %d", w.at(), last)
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.stop()
	<-w.done
	for key, revision := range p.acked {
		if _, ok := w.seen[fmt.Sprintf("%s@%d", key, revision)]; !ok {
			w.run.fault("the watch missed %s at revision %d", key, revision)
		}
	}
}

func (w *watch) at() int64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.newest
}

func (w *watch) count() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.seen)
}

// lease keeps one lease alive; its key must live as long.
type lease struct {
	run   *run
	key   string
	id    clientv3.LeaseID
	mutex sync.Mutex
	n     int
}

func newLease(r *run) *lease {
	l := &lease{run: r, key: r.space + "lease"}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	granted, err := r.client.Grant(ctx, 30)
	if err != nil {
		r.fault("no lease: %v", err)
		return l
	}
	l.id = granted.ID
	if _, err := r.put(ctx, l.key, "", clientv3.WithLease(l.id)); err != nil {
		r.fault("no key on the lease: %v", err)
	}
	return l
}

func (l *lease) work(ctx context.Context) {
	renewals, err := l.run.client.KeepAlive(ctx, l.id)
	if err != nil {
		l.run.fault("the lease cannot be kept: %v", err)
		return
	}
	for range renewals {
		l.mutex.Lock()
		l.n++
		l.mutex.Unlock()
	}
	if ctx.Err() == nil {
		l.run.fault("the lease was lost while it was kept")
	}
}

func (l *lease) check() {
	if len(l.run.read(l.key).Kvs) == 0 {
		l.run.fault("the key of a kept lease is gone")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := l.run.client.Revoke(ctx, l.id); err != nil {
		l.run.fault("the lease cannot be revoked: %v", err)
		return
	}
	if len(l.run.read(l.key).Kvs) != 0 {
		l.run.fault("a key outlives its lease")
	}
}

func (l *lease) renewals() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.n
}
