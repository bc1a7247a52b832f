package peer.clients;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A transactional producer of RocketMQ: NAMESRV COUNT. Of each four transactions one is committed, one
 * rolled back, and two wait for the question of the broker, one of which is committed then. Prints a
 * line "@sent=N" once half of them are sent, and at the end what is in the topic.
 */
public final class Transactions {
    private static final String TOPIC = "JavaTransactions";
    private static final long WAIT_MS = 120_000;
    private static final long QUIET_MS = 5000;
    private static final int CALL_MS = 3000;

    private final PrintStream out = new PrintStream(
        new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private final String namesrv;
    /** By the id of a transaction whose half message was acknowledged. */
    private final Map<String, Integer> numbers = new ConcurrentHashMap<>();

    private Transactions(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) {
        System.setProperty("rocketmq.client.logUseSlf4j", "false");
        int status = 0;
        try {
            new Transactions(args[0]).run(Integer.parseInt(args[1]));
        } catch (Exception e) {
            e.printStackTrace();
            status = 1;
        }
        Runtime.getRuntime().halt(status);
    }

    private void print(String name, long value) {
        out.println("@" + name + "=" + value);
    }

    /** What the producer says at once. */
    private static LocalTransactionState first(int number) {
        return switch (number % 4) {
            case 0 -> LocalTransactionState.COMMIT_MESSAGE;
            case 1 -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    private static boolean isCommitted(int number) {
        return number % 2 == 0;
    }

    private void run(int count) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("java-transactions");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(CALL_MS);
        producer.setPollNameServerInterval(500);
        producer.setHeartbeatBrokerInterval(500);
        // A half message that is sent again would be another transaction of the same id.
        producer.setRetryTimesWhenSendFailed(0);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                numbers.put(message.getTransactionId(), (Integer) number);
                return first((Integer) number);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                Integer number = numbers.get(message.getTransactionId());
                // The answer to its half message was lost, and it was sent as another one.
                boolean commits = number != null && isCommitted(number);
                return commits ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        for (int number = 0; number < count; number++) {
            if (number == count / 2) {
                print("sent", number);
            }
            send(producer, number);
        }

        Map<Integer, Integer> seen = new TreeMap<>();
        long end = System.currentTimeMillis() + WAIT_MS;
        while (seen.size() < count / 2 && System.currentTimeMillis() < end) {
            Thread.sleep(200);
            read(seen);
        }
        // Rounds in which nothing may come.
        Thread.sleep(QUIET_MS);
        read(seen);
        print("committed", seen.keySet().stream().filter(Transactions::isCommitted).count());
        print("rolled back", seen.keySet().stream().filter(each -> !isCommitted(each)).count());
        print("twice", seen.values().stream().filter(times -> times > 1).count());
        producer.shutdown();
    }

    private static void send(TransactionMQProducer producer, int number) throws Exception {
        byte[] body = ("" + number).getBytes(StandardCharsets.UTF_8);
        long end = System.currentTimeMillis() + WAIT_MS;
        while (System.currentTimeMillis() < end) {
            try {
                Message message = new Message(TOPIC, body);
                if (producer.sendMessageInTransaction(message, number).getSendStatus()
                    == SendStatus.SEND_OK) {
                    return;
                }
            } catch (Exception e) {
                // A master may be gone.
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("transaction " + number + " is not acknowledged");
    }

    /** Counts each number that is in the topic, as far as the topic can be read. */
    private void read(Map<Integer, Integer> seen) {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("java-readers");
        consumer.setNamesrvAddr(namesrv);
        Map<Integer, Integer> found = new TreeMap<>();
        try {
            consumer.start();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(TOPIC)) {
                long offset = consumer.minOffset(queue);
                long end = consumer.maxOffset(queue);
                while (offset < end) {
                    PullResult pulled = consumer.pull(queue, "*", offset, 32);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        pulled.getMsgFoundList().forEach(each -> found.merge(
                            Integer.valueOf(new String(each.getBody(), StandardCharsets.UTF_8)), 1,
                            Integer::sum));
                    }
                    offset = pulled.getNextBeginOffset();
                }
            }
            seen.clear();
            seen.putAll(found);
        } catch (Exception e) {
            // The next call reads it.
        } finally {
            consumer.shutdown();
        }
    }
}
