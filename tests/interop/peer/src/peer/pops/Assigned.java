package peer.pops;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Two orderly push consumers of RocketMQ that let the broker share: NAMESRV. They wait for a topic, share
 * its queues, and get messages in order. Prints how many messages they got, whether those of each queue
 * came in order, and how many queues each consumer had at the end.
 */
public final class Assigned {
    private static final String TOPIC = "JavaAssigned";
    private static final String GROUP = "java-assigned";
    private static final int QUEUES = 4;
    private static final int MESSAGES = 40;
    private static final long WAIT_MS = 90_000;

    private final PrintStream out = new PrintStream(
        new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private final String namesrv;
    private final Map<Integer, List<Integer>> seen = new ConcurrentHashMap<>();
    private final Map<Integer, String> owners = new ConcurrentHashMap<>();

    private Assigned(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) {
        System.setProperty("rocketmq.client.logUseSlf4j", "false");
        int status = 0;
        try {
            new Assigned(args[0]).run();
        } catch (Exception e) {
            e.printStackTrace();
            status = 1;
        }
        Runtime.getRuntime().halt(status);
    }

    private void run() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-assigned-producers");
        producer.setNamesrvAddr(namesrv);
        producer.setDefaultTopicQueueNums(QUEUES);
        producer.start();
        send(producer, 0);
        consume("first");
        consume("second");
        int sent = MESSAGES;
        await(sent);

        // The consumers share the queues once each of them knows the other one.
        long end = System.currentTimeMillis() + WAIT_MS;
        while (count("first") != QUEUES / 2 && System.currentTimeMillis() < end) {
            send(producer, sent);
            sent += MESSAGES;
            await(sent);
        }
        out.println("@lost=" + (sent - total()));
        out.println("@in order=" + seen.values().stream().allMatch(Assigned::ascends));
        out.println("@queues=[" + count("first") + "," + count("second") + "]");
    }

    private void send(DefaultMQProducer producer, int begin) throws Exception {
        for (int number = begin; number < begin + MESSAGES; ++number) {
            byte[] body = String.valueOf(number).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(TOPIC, body);
            int queue = number % QUEUES;
            SendStatus status = producer.send(message, (queues, sent, each) -> queueOf(queues, queue), null)
                .getSendStatus();
            if (status != SendStatus.SEND_OK) {
                throw new IllegalStateException(status.name());
            }
        }
    }

    private static MessageQueue queueOf(List<MessageQueue> queues, int number) {
        return queues.stream().filter(each -> each.getQueueId() == number).findFirst().orElseThrow();
    }

    private void consume(String name) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt each : messages) {
                int number = Integer.parseInt(new String(each.getBody(), StandardCharsets.UTF_8));
                seen.computeIfAbsent(each.getQueueId(), key -> new CopyOnWriteArrayList<>()).add(number);
                owners.put(each.getQueueId(), name);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
    }

    private void await(int count) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (total() < count && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
    }

    private int total() {
        return (int) seen.values().stream().flatMap(List::stream).distinct().count();
    }

    private long count(String name) {
        return owners.values().stream().filter(name::equals).count();
    }

    private static boolean ascends(List<Integer> numbers) {
        for (int at = 1; at < numbers.size(); ++at) {
            if (numbers.get(at) <= numbers.get(at - 1)) {
                return false;
            }
        }
        return true;
    }
}
