// Producers and consumers of rocketmq-client-go against one broker or group:
//
//	clients NAMESRV [LETTERS]
//
// With a number, only a consumer that fails at all its messages, which lives through a fail-over.
// Prints a line "@NAME=JSON" for each thing tried.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	topic        = "GoClients"
	orderedTopic = "GoOrdered"
	failingTopic = "GoFailing"
	askedTopic   = "GoAsked"
	delayedTopic = "GoDelayed"
	endedTopic   = "GoEnded"
	dyingTopic   = "GoDying"
	sent         = 20
	wait         = 150 * time.Second
	pause        = 20 * time.Millisecond
	again        = 500 * time.Millisecond
)

var (
	namesrv   []string
	instances int64
)

func main() {
	rlog.SetLogLevel("fatal")
	namesrv = []string{os.Args[1]}
	maker := newProducer()
	if len(os.Args) > 2 {
		letters, err := strconv.Atoi(os.Args[2])
		check(err)
		giveUp(maker, letters, letters)
		return
	}
	send(maker)
	consume()
	count := share(maker)
	broadcast(count)
	pull(count)
	poll(count)
	delay(maker)
	request(maker)
	transact()
	consumeAgain(maker)
	giveUp(maker, 1, 0)
	consumeInOrder(maker)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func show(name string, value interface{}) {
	text, err := json.Marshal(value)
	check(err)
	fmt.Printf("@%s=%s\n", name, text)
}

func waitFor(condition func() bool) {
	for end := time.Now().Add(wait); !condition() && time.Now().Before(end); {
		time.Sleep(pause)
	}
}

// Clients with one instance name share connections and end together.
func instance() string {
	return fmt.Sprintf("instance-%d", atomic.AddInt64(&instances, 1))
}

func newProducer(options ...producer.Option) rocketmq.Producer {
	made, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithGroupName("go-producers"),
		producer.WithInstanceName(instance()),
		producer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)),
	}, options...)...)
	check(err)
	check(made.Start())
	return made
}

func message(topic string, body string, tag string) *primitive.Message {
	made := primitive.NewMessage(topic, []byte(body)).WithKeys([]string{"key-" + body})
	made.WithProperty("number", body)
	return made.WithTag(tag)
}

// Sends until the message is acknowledged: a master may be gone.
func insist(maker rocketmq.Producer, message *primitive.Message) {
	waitFor(func() bool {
		result, err := maker.SendSync(context.Background(), message)
		return err == nil && result.Status == primitive.SendOK
	})
}

func send(maker rocketmq.Producer) {
	ctx := context.Background()
	result, err := maker.SendSync(ctx, message(topic, "0", "a"))
	check(err)
	show("sync", result.Status == primitive.SendOK)

	var stored int64
	for i := 1; i <= 10; i++ {
		check(maker.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			if err == nil && result.Status == primitive.SendOK {
				atomic.AddInt64(&stored, 1)
			}
		}, message(topic, strconv.Itoa(i), "b")))
	}
	waitFor(func() bool { return atomic.LoadInt64(&stored) == 10 })
	show("async", atomic.LoadInt64(&stored))

	check(maker.SendOneWay(ctx, message(topic, "11", "a")))
	var batch []*primitive.Message
	for i := 12; i < sent; i++ {
		batch = append(batch, message(topic, strconv.Itoa(i), "b"))
	}
	result, err = maker.SendSync(ctx, batch...)
	check(err)
	show("batch", result.Status == primitive.SendOK)
}

// A consumer replies to a request.
func request(maker rocketmq.Producer) {
	insist(maker, message(askedTopic, "first", ""))
	replier := newProducer(producer.WithGroupName("go-repliers"))
	asked := start("go-asked", askedTopic, func(message *primitive.MessageExt) consumer.ConsumeResult {
		if consumer.GetReplyToClient(message) == "" {
			return consumer.ConsumeSuccess
		}
		// This release reads properties from the body, and makes a message without one.
		reply, err := consumer.CreateReplyMessage(message, nil)
		if err == nil {
			reply.Body = append([]byte("re: "), message.Body...)
			_, err = replier.SendSync(context.Background(), reply)
		}
		if err != nil {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	})
	reply, err := maker.Request(context.Background(), wait, message(askedTopic, "hello", ""))
	if err != nil {
		show("requested", err.Error())
	} else {
		show("requested", string(reply.Body))
	}
	check(asked.Shutdown())
	check(replier.Shutdown())
}
