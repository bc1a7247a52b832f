package main

import (
	"context"
	"strconv"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const transactions = 8

// Of each four transactions one is committed, one rolled back, and two wait for the question of the
// broker, one of which is committed then.
type ender struct{}

func numberOf(body []byte) int {
	number, err := strconv.Atoi(string(body))
	check(err)
	return number
}

func (ender) ExecuteLocalTransaction(half *primitive.Message) primitive.LocalTransactionState {
	switch numberOf(half.Body) % 4 {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func (ender) CheckLocalTransaction(half *primitive.MessageExt) primitive.LocalTransactionState {
	if numberOf(half.Body)%2 == 0 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func transact() {
	maker, err := rocketmq.NewTransactionProducer(ender{},
		producer.WithGroupName("go-transactions"),
		producer.WithInstanceName(instance()),
		producer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)))
	check(err)
	check(maker.Start())
	for i := 0; i < transactions; i++ {
		half := message(endedTopic, strconv.Itoa(i), "")
		_, err := maker.SendMessageInTransaction(context.Background(), half)
		check(err)
	}
	var found seen
	reader := start("go-ended", endedTopic, found.add)
	waitFor(func() bool { return found.count() == transactions/2 })
	show("committed", found.sorted())
	check(reader.Shutdown())
	check(maker.Shutdown())
}
