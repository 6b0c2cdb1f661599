// Runs the official Go client against the cluster at $NAMESRV and $BROKER, addresses separated by ";": go-interop PREFIX PATTERN. One line per case:
// "ok NAME 1.2s" or "FAIL NAME reason".
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	resolver = primitive.NewPassthroughResolver([]string{os.Getenv("NAMESRV")})
	brokers  = strings.Split(os.Getenv("BROKER"), ";")
	run      = strconv.FormatInt(time.Now().UnixMilli(), 36)
	serial   atomic.Int64
	ctx      = context.Background()
)

// unique is a name that no other case and no earlier run has used.
func unique(base string) string {
	return fmt.Sprintf("go-%s-%s-%d", base, run, serial.Add(1))
}

// check ends the case with a reason if err is set or the condition does not hold.
func check(holds bool, format string, args ...any) {
	if !holds {
		panic(fmt.Sprintf(format, args...))
	}
}

func must(err error, what string) {
	check(err == nil, "%s: %v", what, err)
}

func within(limit time.Duration, what string, holds func() bool) {
	for end := time.Now().Add(limit); !holds(); time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(end), "not within %v: %s", limit, what)
	}
}

type cases struct {
	admin interface {
		CreateTopic(ctx context.Context, opts ...admin.OptionCreate) error
		FetchPublishMessageQueues(ctx context.Context, topic string) ([]*primitive.MessageQueue, error)
	}
	producer rocketmq.Producer
}

// createTopic makes so many queues on every broker.
func (c *cases) createTopic(topic string, queues int) string {
	for _, broker := range brokers {
		must(c.admin.CreateTopic(ctx, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(broker),
			admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues)), "create "+topic)
	}
	within(10*time.Second, "route of "+topic, func() bool {
		found, err := c.admin.FetchPublishMessageQueues(ctx, topic)
		return err == nil && len(found) == queues*len(brokers)
	})
	return topic
}

func newProducer(opts ...producer.Option) rocketmq.Producer {
	p, err := rocketmq.NewProducer(append([]producer.Option{producer.WithNsResolver(resolver), producer.WithRetry(2),
		producer.WithGroupName(unique("producer")), producer.WithInstanceName(unique("instance")),
		producer.WithSendMsgTimeout(10 * time.Second)}, opts...)...)
	must(err, "new producer")
	must(p.Start(), "start producer")
	return p
}

func message(topic, tag string, i int) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(fmt.Sprintf("body é中 %d", i)))
	if tag != "" {
		m.WithTag(tag)
	}
	m.WithKeys([]string{fmt.Sprintf("key-%d", i), "order"})
	m.WithProperty("number", strconv.Itoa(i))
	m.WithProperty("text", "a b=c;中文")
	return m
}

func (c *cases) send(topic, tag string, from, count int) {
	for i := from; i < from+count; i++ {
		result, err := c.producer.SendSync(ctx, message(topic, tag, i))
		must(err, "send")
		check(result.Status == primitive.SendOK, "send status %v", result.Status)
	}
}

type arrival struct {
	message *primitive.MessageExt
	at      time.Time
}

type inbox struct {
	sync.Mutex
	arrivals []arrival
}

func (in *inbox) put(messages []*primitive.MessageExt) {
	in.Lock()
	defer in.Unlock()
	for _, m := range messages {
		in.arrivals = append(in.arrivals, arrival{m, time.Now()})
	}
}

func (in *inbox) all() []arrival {
	in.Lock()
	defer in.Unlock()
	return append([]arrival(nil), in.arrivals...)
}

// expect waits until the numbered messages have arrived, each once and unchanged, and nothing else.
func (in *inbox) expect(topic, tag string, numbers []int) {
	within(40*time.Second, fmt.Sprintf("%d messages arrive", len(numbers)), func() bool { return len(in.all()) >= len(numbers) })
	time.Sleep(300 * time.Millisecond)
	var got []int
	for _, each := range in.all() {
		m := each.message
		i, err := strconv.Atoi(m.GetProperty("number"))
		must(err, "number property")
		want := message(topic, tag, i)
		check(m.Topic == topic, "topic %s, want %s", m.Topic, topic)
		check(string(m.Body) == string(want.Body), "body %q, want %q", m.Body, want.Body)
		check(m.GetKeys() == want.GetKeys(), "keys %q, want %q", m.GetKeys(), want.GetKeys())
		check(m.GetTags() == want.GetTags(), "tag %q, want %q", m.GetTags(), want.GetTags())
		check(m.GetProperty("text") == want.GetProperty("text"), "property %q", m.GetProperty("text"))
		got = append(got, i)
	}
	sort.Ints(got)
	check(fmt.Sprint(got) == fmt.Sprint(numbers), "got %v, want %v", got, numbers)
}

func numbers(from, count int) []int {
	all := make([]int, count)
	for i := range all {
		all[i] = from + i
	}
	return all
}

type handler = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func consume(group, topic, tags string, handle handler, opts ...consumer.Option) rocketmq.PushConsumer {
	c, err := rocketmq.NewPushConsumer(append([]consumer.Option{consumer.WithNsResolver(resolver), consumer.WithGroupName(group),
		consumer.WithInstance(unique("instance")), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, opts...)...)
	must(err, "new consumer")
	must(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}, handle), "subscribe")
	must(c.Start(), "start consumer")
	return c
}

func collect(in *inbox) handler {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.put(messages)
		return consumer.ConsumeSuccess, nil
	}
}

// expectStored reads the topic with a new group.
func expectStored(topic, tag string, numbers []int) {
	in := &inbox{}
	defer consume(unique("reader"), topic, "*", collect(in)).Shutdown()
	in.expect(topic, tag, numbers)
}

func (c *cases) sendSync() {
	topic := c.createTopic(unique("sync"), 4)
	c.send(topic, "tag", 0, 100)
	expectStored(topic, "tag", numbers(0, 100))
}

func (c *cases) sendAsync() {
	topic := c.createTopic(unique("async"), 4)
	var answered sync.WaitGroup
	var failed atomic.Int64
	for i := 0; i < 200; i++ {
		answered.Add(1)
		must(c.producer.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil || result.Status != primitive.SendOK {
				failed.Add(1)
			}
			answered.Done()
		}, message(topic, "tag", i)), "async send")
	}
	answered.Wait()
	check(failed.Load() == 0, "%d of 200 async sends failed", failed.Load())
	expectStored(topic, "tag", numbers(0, 200))
}

func (c *cases) sendOneWay() {
	topic := c.createTopic(unique("oneway"), 4)
	for i := 0; i < 100; i++ {
		must(c.producer.SendOneWay(ctx, message(topic, "tag", i)), "one-way send")
	}
	expectStored(topic, "tag", numbers(0, 100))
}

func (c *cases) sendBatch() {
	topic := c.createTopic(unique("batch"), 2)
	for round := 0; round < 4; round++ {
		var batch []*primitive.Message
		for i := 0; i < 50; i++ {
			batch = append(batch, message(topic, "tag", round*50+i))
		}
		result, err := c.producer.SendSync(ctx, batch...)
		must(err, "batch send")
		check(result.Status == primitive.SendOK, "send status %v", result.Status)
	}
	expectStored(topic, "tag", numbers(0, 200))
}

func (c *cases) autoCreated() {
	topic := unique("auto")
	c.send(topic, "tag", 0, 10)
	expectStored(topic, "tag", numbers(0, 10))
}

func (c *cases) largeBodies() {
	topic := c.createTopic(unique("large"), 1)
	for _, size := range []int{5_000, 1_000_000} {
		body := make([]byte, size)
		for i := range body {
			body[i] = "0123456789 text "[i/7%16]
		}
		m := message(topic, "tag", size)
		m.Body = body
		_, err := c.producer.SendSync(ctx, m)
		must(err, "send")
		in := &inbox{}
		reader := consume(unique("reader"), topic, "*", collect(in))
		within(40*time.Second, "body of "+strconv.Itoa(size), func() bool {
			for _, each := range in.all() {
				if string(each.message.Body) == string(body) {
					return true
				}
			}
			return false
		})
		reader.Shutdown()
	}
}

func (c *cases) push() {
	topic := c.createTopic(unique("push"), 4)
	c.send(topic, "tag", 0, 100)
	in := &inbox{}
	defer consume(unique("group"), topic, "*", collect(in)).Shutdown()
	c.send(topic, "tag", 100, 100)
	in.expect(topic, "tag", numbers(0, 200))
}

func (c *cases) tags() {
	topic := c.createTopic(unique("tags"), 2)
	c.send(topic, "TagA", 0, 20)
	c.send(topic, "TagB", 20, 20)
	in := &inbox{}
	defer consume(unique("group"), topic, "TagA", collect(in)).Shutdown()
	c.send(topic, "TagB", 40, 20)
	c.send(topic, "TagA", 20, 20)
	in.expect(topic, "TagA", numbers(0, 40))
}

func (c *cases) orderly() {
	topic := c.createTopic(unique("orderly"), 3)
	p := newProducer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	defer p.Shutdown()
	for i := 0; i < 120; i++ {
		m := message(topic, "tag", i)
		m.WithShardingKey(fmt.Sprintf("shard-%d", i%6))
		_, err := p.SendSync(ctx, m)
		must(err, "send")
	}
	in := &inbox{}
	defer consume(unique("group"), topic, "*", func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.put(messages)
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true)).Shutdown()
	in.expect(topic, "tag", numbers(0, 120))
	last := map[string]int64{}
	for _, each := range in.all() {
		queue := fmt.Sprintf("%s/%d", each.message.Queue.BrokerName, each.message.Queue.QueueId)
		before, seen := last[queue]
		check(!seen || each.message.QueueOffset > before, "queue %s: offset %d after %d", queue, each.message.QueueOffset, before)
		last[queue] = each.message.QueueOffset
	}
}

func (c *cases) retry() {
	topic := c.createTopic(unique("retry"), 1)
	group := unique("group")
	// This client asks for a missing route again after 30 s only; with the retry topic there before, the retry is not kept waiting.
	c.createTopic("%RETRY%"+group, 1)
	in := &inbox{}
	defer consume(group, topic, "*", func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.put(messages)
		if messages[0].ReconsumeTimes == 0 && messages[0].GetProperty("number") == "1" {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}).Shutdown()
	c.send(topic, "tag", 0, 3)
	in.expect(topic, "tag", numbers(0, 3))
	within(30*time.Second, "the retry", func() bool { return len(in.all()) >= 4 })
	var copies []arrival
	for _, each := range in.all() {
		if each.message.GetProperty("number") == "1" {
			copies = append(copies, each)
		}
	}
	check(len(copies) == 2, "%d arrivals of the failed message", len(copies))
	again := copies[1].message
	check(again.ReconsumeTimes == 1, "reconsume times %d", again.ReconsumeTimes)
	check(string(again.Body) == string(copies[0].message.Body), "body %q", again.Body)
	after := copies[1].at.Sub(copies[0].at)
	check(after > 9900*time.Millisecond && after < 13*time.Second, "retry after %v, not 10 s", after)
}

func main() {
	rlog.SetLogLevel("fatal")
	prefix, only := os.Args[1], regexp.MustCompile(os.Args[2])
	a, err := admin.NewAdmin(admin.WithResolver(resolver))
	must(err, "new admin")
	c := &cases{admin: a, producer: newProducer()}
	all := []struct {
		name string
		body func()
	}{
		{"retry", c.retry}, {"orderly", c.orderly}, {"push", c.push}, {"tags", c.tags}, {"send-sync", c.sendSync},
		{"send-async", c.sendAsync}, {"send-oneway", c.sendOneWay}, {"send-batch", c.sendBatch},
		{"topic-auto-created", c.autoCreated}, {"send-large-bodies", c.largeBodies},
	}
	var running sync.WaitGroup
	var failed atomic.Int64
	for _, each := range all {
		name := prefix + "/" + each.name
		if !only.MatchString(name) {
			continue
		}
		running.Add(1)
		go func() {
			defer running.Done()
			begin := time.Now()
			defer func() {
				if problem := recover(); problem != nil {
					failed.Add(1)
					fmt.Printf("FAIL %s after %.1fs: %v\n", name, time.Since(begin).Seconds(), problem)
				} else {
					fmt.Printf("ok %s %.1fs\n", name, time.Since(begin).Seconds())
				}
			}()
			each.body()
		}()
	}
	running.Wait()
	if failed.Load() > 0 {
		os.Exit(1)
	}
}
