package main

import (
	"context"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type listener func(*primitive.MessageExt) consumer.ConsumeResult

// The bodies that a consumer has seen, with how often.
type seen struct {
	lock   sync.Mutex
	bodies map[string]int
}

func (each *seen) add(message *primitive.MessageExt) consumer.ConsumeResult {
	each.lock.Lock()
	defer each.lock.Unlock()
	if each.bodies == nil {
		each.bodies = map[string]int{}
	}
	each.bodies[string(message.Body)]++
	return consumer.ConsumeSuccess
}

func (each *seen) count() int {
	each.lock.Lock()
	defer each.lock.Unlock()
	return len(each.bodies)
}

func (each *seen) sorted() []string {
	each.lock.Lock()
	defer each.lock.Unlock()
	found := []string{}
	for body := range each.bodies {
		found = append(found, body)
	}
	sort.Strings(found)
	return found
}

func (each *seen) fewest() int {
	each.lock.Lock()
	defer each.lock.Unlock()
	fewest := int(^uint(0) >> 1)
	for _, times := range each.bodies {
		if times < fewest {
			fewest = times
		}
	}
	return fewest
}

func common(group string, options ...consumer.Option) []consumer.Option {
	return append([]consumer.Option{
		consumer.WithGroupName(group),
		consumer.WithInstance(instance()),
		consumer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)
}

func tagged(tags string) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
}

func start(group string, topic string, each listener, options ...consumer.Option) rocketmq.PushConsumer {
	return startSelecting(group, topic, tagged("*"), each, options...)
}

// A topic that was made just before may have no route yet, which a consumer needs at its start.
func startSelecting(
	group string, topic string, selector consumer.MessageSelector, each listener,
	options ...consumer.Option,
) rocketmq.PushConsumer {
	var made rocketmq.PushConsumer
	waitFor(func() bool {
		started, err := rocketmq.NewPushConsumer(common(group, options...)...)
		check(err)
		made = started
		check(made.Subscribe(topic, selector, toAll(each)))
		if err = made.Start(); err != nil {
			time.Sleep(again)
		}
		return err == nil
	})
	return made
}

func toAll(each listener) func(
	context.Context, ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, message := range messages {
			if one := each(message); one != consumer.ConsumeSuccess {
				result = one
			}
		}
		return result, nil
	}
}

// Starts a consumer whose messages come again. The client asks for routes at its start and then
// every 30 s, and the broker makes a group's topic for retries for its first consumer. So a
// consumer that reads nothing goes first, and the other one follows once that topic has a route.
func startFailing(
	group string, topic string, each listener, options ...consumer.Option,
) rocketmq.PushConsumer {
	first := startSelecting(group, topic, tagged("none"), each, options...)
	check(first.Shutdown())
	check(startPulling("go-looking", "%RETRY%"+group).Shutdown())
	return start(group, topic, each, options...)
}

func consume() {
	var all, some seen
	every := start("go-consumers", topic, all.add)
	waitFor(func() bool { return all.count() == sent })
	show("pushed", all.count())
	check(every.Shutdown())

	chosen := startSelecting("go-tagged", topic, tagged("a || c"), some.add)
	waitFor(func() bool { return some.count() == 2 })
	show("tagged", some.sorted())
	check(chosen.Shutdown())

	var selected seen
	expression := consumer.MessageSelector{Type: consumer.SQL92, Expression: "number BETWEEN 3 AND 5"}
	selecting := startSelecting("go-selecting", topic, expression, selected.add)
	waitFor(func() bool { return selected.count() == 3 })
	show("selected", selected.sorted())
	check(selecting.Shutdown())
}

// The consumers of one group share the queues of a topic once the broker has told them of each
// other. Returns how many messages the topic has then.
func share(maker rocketmq.Producer) int {
	var first, second seen
	one := start("go-shared", topic, first.add)
	waitFor(func() bool { return first.count() == sent })
	other := start("go-shared", topic, second.add)
	number := sent
	waitFor(func() bool {
		insist(maker, message(topic, strconv.Itoa(number), "c"))
		number++
		return second.count() > 0
	})
	waitFor(func() bool { return first.count()+second.count() >= number })
	show("shared", first.count()+second.count() >= number && second.count() > 0)
	check(one.Shutdown())
	check(other.Shutdown())
	return number
}

func broadcast(count int) {
	var first, second seen
	model := consumer.WithConsumerModel(consumer.BroadCasting)
	one := start("go-broadcast", topic, first.add, model)
	other := start("go-broadcast", topic, second.add, model)
	waitFor(func() bool { return first.count() == count && second.count() == count })
	show("broadcast", first.count() == count && second.count() == count)
	check(one.Shutdown())
	check(other.Shutdown())
}

func startPulling(group string, topic string) rocketmq.PullConsumer {
	var made rocketmq.PullConsumer
	waitFor(func() bool {
		started, err := rocketmq.NewPullConsumer(common(group)...)
		check(err)
		made = started
		check(made.Subscribe(topic, tagged("*")))
		if err = made.Start(); err != nil {
			time.Sleep(again)
		}
		return err == nil
	})
	return made
}

// Reads a topic until it has shown *count* messages.
func read(group string, topic string, count int) int {
	var found seen
	reader := startPulling(group, topic)
	waitFor(func() bool {
		pulled, err := reader.Pull(context.Background(), 32)
		if err != nil {
			return false
		}
		for _, message := range pulled.GetMessageExts() {
			found.add(message)
			check(reader.UpdateOffset(message.Queue, message.QueueOffset+1))
		}
		return found.count() >= count
	})
	check(reader.PersistOffset(context.Background(), topic))
	check(reader.Shutdown())
	return found.count()
}

func pull(count int) {
	show("pulled", read("go-pullers", topic, count) == count)
}

func poll(count int) {
	var found seen
	reader := startPulling("go-polling", topic)
	waitFor(func() bool {
		request, err := reader.Poll(context.Background(), time.Second)
		if err != nil {
			return false
		}
		for _, message := range request.GetMsgList() {
			found.add(message)
		}
		reader.ACK(context.Background(), request, consumer.ConsumeSuccess)
		return found.count() >= count
	})
	show("polled", found.count() == count)
	check(reader.Shutdown())
}

// Shows whether a message of a level and one of a time came, and not before their time.
func delay(maker rocketmq.Producer) {
	insist(maker, message(delayedTopic, "now", ""))
	var lock sync.Mutex
	waited := map[string]time.Duration{}
	before := time.Now()
	insist(maker, message(delayedTopic, "delayed", "").WithDelayTimeLevel(1))
	timed := message(delayedTopic, "timed", "")
	timed.WithProperty("TIMER_DELAY_SEC", "1")
	insist(maker, timed)
	late := start("go-delayed", delayedTopic, func(each *primitive.MessageExt) consumer.ConsumeResult {
		lock.Lock()
		defer lock.Unlock()
		waited[string(each.Body)] = time.Since(before)
		return consumer.ConsumeSuccess
	})
	waitFor(func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(waited) == 3
	})
	show("delayed", waited["delayed"] >= time.Second)
	show("timed", waited["timed"] >= time.Second)
	check(late.Shutdown())
}

// The listener fails at its first try.
func consumeAgain(maker rocketmq.Producer) {
	var found seen
	insist(maker, message(failingTopic, "x", "t"))
	retries := make(chan int32, 10)
	failing := startFailing("go-failing", failingTopic, func(each *primitive.MessageExt) consumer.ConsumeResult {
		found.add(each)
		retries <- each.ReconsumeTimes
		if each.ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	})
	shown := []int32{<-retries, <-retries}
	show("tries", shown)
	check(failing.Shutdown())
}

// The listener fails at every try: shows "tried" once it got all, sends *more* messages, and shows
// the dead letters.
func giveUp(maker rocketmq.Producer, count int, more int) {
	var found seen
	for i := 0; i < count; i++ {
		insist(maker, message(dyingTopic, strconv.Itoa(i), ""))
	}
	dying := startFailing("go-dying", dyingTopic, func(each *primitive.MessageExt) consumer.ConsumeResult {
		found.add(each)
		return consumer.ConsumeRetryLater
	}, consumer.WithMaxReconsumeTimes(2))
	waitFor(func() bool { return found.count() >= count })
	show("tried", found.count())
	for i := count; i < count+more; i++ {
		insist(maker, message(dyingTopic, strconv.Itoa(i), ""))
	}
	show("dead", read("go-letters", "%DLQ%go-dying", count+more))
	show("fewest tries", found.fewest())
	check(dying.Shutdown())
}

// Each message names a chain and its number there; all of a chain are in one queue. The listener
// fails once, and the queue waits for it.
func consumeInOrder(maker rocketmq.Producer) {
	var lock sync.Mutex
	chains := map[string][]int{}
	failed, total := false, 0
	selecting := newProducer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	for i := 0; i < 60; i++ {
		chain := strconv.Itoa(i % 3)
		insist(selecting, message(orderedTopic, chain+" "+strconv.Itoa(i), "").WithShardingKey(chain))
	}
	orderly := start("go-orderly", orderedTopic, func(each *primitive.MessageExt) consumer.ConsumeResult {
		lock.Lock()
		defer lock.Unlock()
		words := strings.Fields(string(each.Body))
		number, err := strconv.Atoi(words[1])
		check(err)
		if number == 30 && !failed {
			failed = true
			return consumer.SuspendCurrentQueueAMoment
		}
		chains[words[0]] = append(chains[words[0]], number)
		total++
		return consumer.ConsumeSuccess
	}, consumer.WithConsumerOrder(true))
	waitFor(func() bool {
		lock.Lock()
		defer lock.Unlock()
		return total >= 60
	})
	show("in order", []bool{isEveryThird(chains["0"]), isEveryThird(chains["1"]), isEveryThird(chains["2"])})
	check(orderly.Shutdown())
	check(selecting.Shutdown())
}

func isEveryThird(numbers []int) bool {
	for i, number := range numbers {
		if number != numbers[0]+3*i {
			return false
		}
	}
	return len(numbers) == 20
}
