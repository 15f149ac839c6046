// The stock Go client at its daily work while members are killed: puts, a
// watch, a kept lease, and the recipes of its concurrency package (mutex,
// election, STM). At the end everything that was acknowledged must be there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// One request may take this long before its end counts as unknown.
const patience = 5 * time.Second

// How long the cluster may take to serve again after the work is done.
const recovery = 60 * time.Second

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members, separated by commas")
	seconds := flag.Int("seconds", 10, "how long to work")
	out := flag.String("out", "", "file for the report, in JSON")
	flag.Parse()

	client, err := clientv3.New(clientv3.Config{
		Endpoints:            strings.Split(*endpoints, ","),
		DialTimeout:          recovery,
		DialKeepAliveTime:    6 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		fmt.Println("FAILED: no client:", err)
		os.Exit(1)
	}
	defer client.Close()

	run := newRun(client)
	report, faults := run.work(time.Duration(*seconds) * time.Second)
	report["client"] = "go"
	report["faults"] = faults
	text, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	if *out != "" {
		if err := os.WriteFile(*out, append(text, '\n'), 0o644); err != nil {
			fmt.Println("FAILED: no report:", err)
			os.Exit(1)
		}
	}
	fmt.Println(string(text))
	if len(faults) > 0 {
		fmt.Println("FAILED:", faults[0])
		os.Exit(1)
	}
	fmt.Println("OK: every acknowledged write is present")
}

// tally counts what was acknowledged and what may or may not have happened.
type tally struct {
	sync.Mutex
	Acknowledged int `json:"acknowledged"`
	Unknown      int `json:"unknown"`
}

// add counts one write and says whether it was acknowledged.
func (t *tally) add(err error) bool {
	t.Lock()
	defer t.Unlock()
	if err != nil {
		t.Unknown++
		return false
	}
	t.Acknowledged++
	return true
}

// run is one run of the program, in a key space of its own.
type run struct {
	client *clientv3.Client
	space  string

	mutex  sync.Mutex
	faults []string
}

func newRun(client *clientv3.Client) *run {
	return &run{client: client, space: fmt.Sprintf("peer-go-%d-%d/", os.Getpid(), time.Now().UnixNano())}
}

func (r *run) fault(format string, args ...any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// work does everything at once for a time, then checks it.
func (r *run) work(length time.Duration) (map[string]any, []string) {
	ctx, stop := context.WithTimeout(context.Background(), length)
	defer stop()

	first, err := r.put(context.Background(), r.space+"first", "")
	if err != nil {
		return map[string]any{}, []string{"the cluster does not serve: " + err.Error()}
	}
	puts := newPuts(r)
	watch := newWatch(r, first.Header.Revision+1)
	lease := newLease(r)
	mutex, election, stm := newCounter(r, "mutex"), newCounter(r, "election"), newCounter(r, "stm")

	var group sync.WaitGroup
	for writer := range 4 {
		group.Go(func() { puts.work(ctx, writer) })
	}
	group.Go(func() { lease.work(ctx) })
	for range 2 {
		group.Go(func() { mutex.underMutex(ctx) })
		group.Go(func() { election.asLeader(ctx) })
		group.Go(func() { stm.inTransaction(ctx) })
	}
	group.Wait()

	last := r.settle()
	puts.check()
	lease.check()
	mutex.check()
	election.check()
	stm.check()
	watch.check(puts, last)
	return map[string]any{
		"puts": &puts.tally, "mutex": &mutex.tally, "election": &election.tally, "stm": &stm.tally,
		"events": watch.count(), "renewals": lease.renewals(),
	}, r.faults
}

// put puts once.
func (r *run) put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.client.Put(ctx, key, value, options...)
}

// settle waits until the cluster serves again and returns its revision.
func (r *run) settle() int64 {
	for deadline := time.Now().Add(recovery); ; {
		response, err := r.put(context.Background(), r.space+"last", "")
		if err == nil {
			return response.Header.Revision
		}
		if time.Now().After(deadline) {
			r.fault("the cluster does not serve %v after the work: %v", recovery, err)
			return 0
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// read reads a key or a range, however often it takes.
func (r *run) read(key string, options ...clientv3.OpOption) *clientv3.GetResponse {
	for deadline := time.Now().Add(recovery); ; {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		response, err := r.client.Get(ctx, key, options...)
		cancel()
		if err == nil {
			return response
		}
		if time.Now().After(deadline) {
			r.fault("%s cannot be read: %v", key, err)
			return &clientv3.GetResponse{}
		}
		time.Sleep(200 * time.Millisecond)
	}
}
