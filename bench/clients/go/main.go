// Go client's side of the comparison: produce-load NAMESRV TOPIC SIZE; see README.md for what it reads and prints.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type load struct {
	producer     rocketmq.Producer
	topic        string
	body         []byte
	sent, failed atomic.Int64
}

func (l *load) count(result *primitive.SendResult, err error, messages int64) {
	if err == nil && result.Status == primitive.SendOK {
		l.sent.Add(messages)
	} else if l.failed.Add(messages) == messages {
		fmt.Fprintln(os.Stderr, result, err)
	}
}

func (l *load) message() *primitive.Message {
	return &primitive.Message{Topic: l.topic, Body: l.body}
}

func (l *load) sync(threads int, end time.Time) {
	var all sync.WaitGroup
	for range threads {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) {
				result, err := l.producer.SendSync(context.Background(), l.message())
				l.count(result, err, 1)
			}
		}()
	}
	all.Wait()
}

func (l *load) async(inFlight int, end time.Time) {
	free := make(chan struct{}, inFlight)
	for time.Now().Before(end) {
		free <- struct{}{}
		err := l.producer.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			l.count(result, err, 1)
			<-free
		}, l.message())
		if err != nil {
			l.count(nil, err, 1)
			<-free
		}
	}
	for range inFlight {
		free <- struct{}{}
	}
}

func (l *load) batch(size int, end time.Time) {
	for time.Now().Before(end) {
		messages := make([]*primitive.Message, size)
		for i := range messages {
			messages[i] = l.message()
		}
		result, err := l.producer.SendSync(context.Background(), messages...)
		l.count(result, err, int64(size))
	}
}

// cpu is what this process used so far, user and system.
func cpu() time.Duration {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("error")
	size, err := strconv.Atoi(os.Args[3])
	must(err)
	l := &load{topic: os.Args[2], body: bytes.Repeat([]byte("x"), size)}
	l.producer, err = rocketmq.NewProducer(producer.WithNsResolver(primitive.NewPassthroughResolver([]string{os.Args[1]})),
		producer.WithGroupName("produce-load-go"), producer.WithRetry(2))
	must(err)
	must(l.producer.Start())
	fmt.Println(`{"ready":true}`)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		number, err := strconv.Atoi(words[1])
		must(err)
		seconds, err := strconv.ParseFloat(words[2], 64)
		must(err)
		l.sent.Store(0)
		l.failed.Store(0)
		before, begin := cpu(), time.Now()
		end := begin.Add(time.Duration(seconds * float64(time.Second)))
		switch words[0] {
		case "sync":
			l.sync(number, end)
		case "async":
			l.async(number, end)
		case "batch":
			l.batch(number, end)
		default:
			must(fmt.Errorf("unknown kind %s", words[0]))
		}
		took, used := time.Since(begin), cpu()-before
		fmt.Printf(`{"messages":%d,"failed":%d,"seconds":%.6f,"cpu_seconds":%.6f}`+"\n",
			l.sent.Load(), l.failed.Load(), took.Seconds(), used.Seconds())
	}
	must(l.producer.Shutdown())
}
