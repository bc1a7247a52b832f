package peer.clients;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's producers and consumers against one broker: NAMESRV. With a number, NAMESRV LETTERS, only
 * a consumer that fails at all its messages. Prints a line "@NAME=JSON" for each thing tried.
 */
public final class Main {
    private static final String TOPIC = "JavaClients";
    private static final String ORDERED_TOPIC = "JavaOrdered";
    private static final String FAILING_TOPIC = "JavaFailing";
    private static final String ASKED_TOPIC = "JavaAsked";
    private static final String DELAYED_TOPIC = "JavaDelayed";
    private static final String DYING_TOPIC = "JavaDying";
    private static final String CLUSTERING = "CLUSTERING";
    private static final String BROADCASTING = "BROADCASTING";
    private static final long WAIT_MS = 90_000;
    private static final int CALL_MS = 30_000;
    private static final int POLL_MS = 1000;

    private final PrintStream out = new PrintStream(
        new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private final String namesrv;
    private final Map<String, Set<String>> seen = new ConcurrentHashMap<>();

    private Main(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) {
        System.setProperty("rocketmq.client.logUseSlf4j", "false");
        System.setProperty("rocketmq.client.rebalance.waitInterval", "" + POLL_MS);
        int status = 0;
        try {
            new Main(args[0]).run(args.length > 1 ? Integer.parseInt(args[1]) : 0);
        } catch (Exception e) {
            e.printStackTrace();
            status = 1;
        }
        // The threads of a client that failed would keep the process alive.
        Runtime.getRuntime().halt(status);
    }

    private void print(String name, Object value) {
        out.println("@" + name + "=" + json(value));
    }

    /** The releases have different libraries for JSON. */
    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(each -> json(each.getKey()) + ":" + json(each.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Collection<?> list) {
            return list.stream().map(Main::json).collect(Collectors.joining(",", "[", "]"));
        }
        return value instanceof String ? "\"" + value + "\"" : String.valueOf(value);
    }

    /** Tries everything, or only dead letters where there is a number of them. */
    private void run(int letters) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-producers");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(CALL_MS);
        producer.setMqClientApiTimeout(CALL_MS);
        producer.start();
        if (letters > 0) {
            giveUp(producer, letters);
            return;
        }
        SendResult first = send(producer);
        pull();
        find(producer, first);
        request(producer);
        consume(producer);
        select();
        delay(producer);
        consumeAgain(producer);
        giveUp(producer, 1);
        consumeInOrder(producer);
        broadcast();
        pullLightly();
        producer.shutdown();
    }

    private static Message message(String body, String tag) {
        Message message =
            new Message(TOPIC, tag, "key-" + body, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("number", body);
        return message;
    }

    private SendResult send(DefaultMQProducer producer) throws Exception {
        SendResult first = producer.send(message("0", "a"));
        print("sync", first.getSendStatus().name());

        CountDownLatch done = new CountDownLatch(10);
        for (int i = 1; i <= 10; i++) {
            producer.send(message("" + i, "b"), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    e.printStackTrace();
                }
            });
        }
        print("async", done.await(WAIT_MS, TimeUnit.MILLISECONDS));

        producer.sendOneway(message("11", "a"));
        List<Message> batch = new ArrayList<>();
        for (int i = 12; i < 20; i++) {
            batch.add(message("" + i, "b"));
        }
        SendResult result = producer.send(batch);
        print("batch", result.getSendStatus().name() + " " + result.getMsgId().split(",").length);

        return first;
    }

    /** Prints whether a message of a level and one of a time came, and none before its time. */
    private void delay(DefaultMQProducer producer) throws Exception {
        Message delayed = new Message(DELAYED_TOPIC, "delayed".getBytes(StandardCharsets.UTF_8));
        delayed.setDelayTimeLevel(1);
        // Clients of 4.9 have no method for it.
        Message timed = new Message(DELAYED_TOPIC, "timed".getBytes(StandardCharsets.UTF_8));
        MessageAccessor.putProperty(timed, "TIMER_DELAY_SEC", "1");
        Map<String, Long> came = new ConcurrentHashMap<>();
        long sent = System.currentTimeMillis();
        producer.send(delayed);
        producer.send(timed);
        DefaultMQPushConsumer consumer = configured("java-delayed", "delayed", DELAYED_TOPIC);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> came.put(text(each), System.currentTimeMillis()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        waitFor(() -> came.size() == 2);
        print("delayed", came.getOrDefault("delayed", 0L) >= sent + 1000);
        print("timed", came.getOrDefault("timed", 0L) >= sent + 1000);
        consumer.shutdown();
    }

    /** A consumer selects by an expression of SQL92. */
    private void select() throws Exception {
        DefaultMQPushConsumer consumer = configured("java-selecting", "selecting", TOPIC);
        consumer.subscribe(TOPIC, MessageSelector.bySql("number BETWEEN 3 AND 5"));
        Set<String> selected = Collections.synchronizedSet(new TreeSet<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> selected.add(text(each)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        waitFor(() -> selected.size() == 3);
        print("selected", selected);
        consumer.shutdown();
    }

    /** A consumer replies to a request. Old clients give up as soon as it is sent. */
    private void request(DefaultMQProducer producer) throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer("java-repliers");
        replier.setNamesrvAddr(namesrv);
        replier.setInstanceName("replier");
        replier.start();
        DefaultMQPushConsumer consumer = configured("java-asked", "asked", ASKED_TOPIC);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                byte[] body = ("re: " + text(messages.get(0))).getBytes(StandardCharsets.UTF_8);
                replier.send(MessageUtil.createReplyMessage(messages.get(0), body));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (Exception e) {
                e.printStackTrace();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
        consumer.start();
        byte[] body = "hello".getBytes(StandardCharsets.UTF_8);
        try {
            Message reply = producer.request(new Message(ASKED_TOPIC, body), WAIT_MS);
            print("requested", new String(reply.getBody(), StandardCharsets.UTF_8));
        } catch (RequestTimeoutException e) {
            print("requested", "not awaited");
        }
        consumer.shutdown();
        replier.shutdown();
    }

    private void pull() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("java-pullers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(CALL_MS);
        consumer.setConsumerPullTimeoutMillis(CALL_MS);
        consumer.start();
        Set<Integer> numbers = new TreeSet<>();
        Set<Integer> tagged = new TreeSet<>();
        waitFor(() -> {
            try {
                numbers.clear();
                tagged.clear();
                for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(TOPIC)) {
                    drain(consumer, queue, "*", numbers);
                    drain(consumer, queue, "a || c", tagged);
                }
                return numbers.size() == 20;
            } catch (Exception e) {
                return false; // Some calls have a time limit of their own that load can exceed.
            }
        });
        print("pulled", numbers.size());
        print("tagged", tagged);
        consumer.shutdown();
    }

    private static void drain(DefaultMQPullConsumer consumer, MessageQueue queue, String tags,
        Set<Integer> numbers) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult pulled = consumer.pull(queue, tags, offset, 32);
            if (pulled.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : pulled.getMsgFoundList()) {
                    numbers.add(Integer.valueOf(new String(message.getBody(), StandardCharsets.UTF_8)));
                }
            }
            offset = pulled.getNextBeginOffset();
        }
    }

    private void find(DefaultMQProducer producer, SendResult first) throws Exception {
        print("by key", insist(() -> {
            List<MessageExt> found = producer
                .queryMessage(TOPIC, "key-5", 32, 0, Long.MAX_VALUE).getMessageList();
            return found.size() + " " + text(found.get(0));
        }));
        print("by id", insist(() -> text(producer.viewMessage(TOPIC, first.getOffsetMsgId()))));
        print("by unique key", insist(() -> text(producer.viewMessage(TOPIC, first.getMsgId()))));
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** Returns the result of a call, tried again while it fails: its time limit may be short. */
    private static String insist(Callable<String> call) throws Exception {
        String[] found = new String[1];
        waitFor(() -> {
            try {
                found[0] = call.call();
            } catch (Exception e) {
                found[0] = null;
            }
            return found[0] != null;
        });
        return found[0];
    }

    private DefaultMQPushConsumer configured(String group, String name, String topic)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(CALL_MS);
        consumer.setInstanceName(name);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private DefaultMQPushConsumer consumer(String group, String name, String model)
        throws Exception {
        DefaultMQPushConsumer consumer = configured(group, name, TOPIC);
        // The releases have the class of the model in different packages.
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), model));
        seen.put(name, ConcurrentHashMap.newKeySet());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.get(name).add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private int seenBy(String... names) {
        Set<String> all = new TreeSet<>();
        for (String name : names) {
            all.addAll(seen.get(name));
        }
        return all.size();
    }

    private void consume(DefaultMQProducer producer) throws Exception {
        DefaultMQPushConsumer first = consumer("java-consumers", "first", CLUSTERING);
        waitFor(() -> seenBy("first") == 20);
        print("pushed", seenBy("first"));

        DefaultMQPushConsumer second = consumer("java-consumers", "second", CLUSTERING);
        Map<String, Integer> queues = new TreeMap<>();
        waitFor(() -> {
            queues.put("first", queuesOf(first));
            queues.put("second", queuesOf(second));
            return queues.get("first") == 2 && queues.get("second") == 2;
        });
        print("shared", queues);
        for (int i = 20; i < 60; i++) {
            producer.send(message("" + i, "c"));
        }
        waitFor(() -> seenBy("first", "second") == 60);
        print("pushed to both", seenBy("first", "second"));

        second.shutdown();
        waitFor(() -> queuesOf(first) == 4);
        print("left", queuesOf(first));
        first.shutdown();
    }

    /** The listener fails at its first try. */
    private void consumeAgain(DefaultMQProducer producer) throws Exception {
        AtomicInteger tries = new AtomicInteger();
        producer.send(new Message(FAILING_TOPIC, "x".getBytes(StandardCharsets.UTF_8)));
        DefaultMQPushConsumer consumer = configured("java-failing", "failing", FAILING_TOPIC);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            tries.incrementAndGet() == 1
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        waitFor(() -> tries.get() == 2);
        print("tries", tries.get());
        consumer.shutdown();
    }

    /** The listener fails at every try: prints "tried" once it got all, and the dead letters. */
    private void giveUp(DefaultMQProducer producer, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            insist(() -> producer.send(new Message(DYING_TOPIC, "d".getBytes(StandardCharsets.UTF_8)))
                .getSendStatus().name());
        }
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = configured("java-dying", "dying", DYING_TOPIC);
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> tries.merge(message.getMsgId(), 1, Integer::sum));
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        waitFor(() -> tries.size() >= count);
        print("tried", tries.size());

        Set<String> dead = new TreeSet<>();
        waitFor(() -> {
            readLetters(dead);
            return dead.size() >= count;
        });
        print("dead", dead.size());
        print("fewest tries", tries.values().stream().mapToInt(Integer::intValue).min().getAsInt());
        consumer.shutdown();
    }

    /** Adds the unique keys of the dead letters, as far as they can be read. */
    private void readLetters(Set<String> dead) {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("java-letters");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(CALL_MS);
        try {
            consumer.start();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues("%DLQ%java-dying")) {
                long offset = consumer.minOffset(queue);
                long end = consumer.maxOffset(queue);
                while (offset < end) {
                    PullResult pulled = consumer.pull(queue, "*", offset, 32);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        pulled.getMsgFoundList().forEach(each -> dead.add(each.getMsgId()));
                    }
                    offset = pulled.getNextBeginOffset();
                }
            }
        } catch (Exception e) {
            // The topic is made by the first letter, and a master may be gone.
        } finally {
            consumer.shutdown();
        }
    }

    /** Each message names a chain and its number there; all of a chain are in one queue. */
    private void consumeInOrder(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 60; i++) {
            byte[] body = (i % 3 + " " + i).getBytes(StandardCharsets.UTF_8);
            producer.send(new Message(ORDERED_TOPIC, body),
                (queues, message, chain) -> queues.get((Integer) chain % queues.size()), i % 3);
        }
        Map<String, ConcurrentLinkedQueue<Integer>> chains = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = configured("java-orderly", "orderly", ORDERED_TOPIC);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                String[] words = text(message).split(" ");
                chains.computeIfAbsent(words[0], chain -> new ConcurrentLinkedQueue<>())
                    .add(Integer.valueOf(words[1]));
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        waitFor(() -> chains.values().stream().mapToInt(ConcurrentLinkedQueue::size).sum() >= 60);
        Map<String, Boolean> inOrder = new TreeMap<>();
        chains.forEach((chain, numbers) -> inOrder.put(chain, isEveryThird(numbers)));
        print("in order", inOrder);
        consumer.shutdown();
    }

    private static boolean isEveryThird(ConcurrentLinkedQueue<Integer> numbers) {
        Iterator<Integer> each = numbers.iterator();
        int expected = numbers.peek() % 3;
        while (each.hasNext()) {
            if (each.next() != expected) {
                return false;
            }
            expected += 3;
        }
        return numbers.size() == 20;
    }

    private void broadcast() throws Exception {
        String group = "java-broadcast";
        DefaultMQPushConsumer one = consumer(group, "one", BROADCASTING);
        DefaultMQPushConsumer other = consumer(group, "other", BROADCASTING);
        waitFor(() -> seenBy("one") == 60 && seenBy("other") == 60);
        print("broadcast", List.of(seenBy("one"), seenBy("other")));
        one.shutdown();
        other.shutdown();
    }

    private void pullLightly() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("java-lite");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(CALL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.start();
        Set<String> bodies = new TreeSet<>();
        waitFor(() -> {
            consumer.poll(100).forEach(message -> bodies.add(text(message)));
            return bodies.size() == 60;
        });
        print("polled", bodies.size());

        MessageQueue queue = consumer.fetchMessageQueues(TOPIC).iterator().next();
        consumer.commitSync();
        print("committed", consumer.committed(queue) > 0);
        consumer.shutdown();
    }

    private static int queuesOf(DefaultMQPushConsumer consumer) {
        int count = 0;
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet()) {
            count += queue.getTopic().equals(TOPIC) ? 1 : 0;
        }
        return count;
    }

    private static void waitFor(BooleanSupplier condition) throws InterruptedException {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!condition.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
    }
}
